#!/bin/sh
# Runs Python as other processors compute: tests/elsewhere.sh PYTHON ARGUMENT...
#
# One line per arithmetic environment, and what was printed where it failed; exit 1 if any did. NumPy
# goes without all that it dispatches on this processor, and OpenBLAS is told to be an older one.
set -u
off=$("$1" -c '
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(*(name for name in __cpu_dispatch__ if __cpu_features__[name]))') || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

run() {
  label=$1
  shift
  if env "$@" >"$log" 2>&1; then
    echo "passed  $label: $(tail -n 1 "$log")"
  else
    failed=1
    tail -n 40 "$log"
    echo "FAILED  $label: $(tail -n 1 "$log")"
  fi
}

run "as it is" "$@"
run "NumPy without $off" NPY_DISABLE_CPU_FEATURES="$off" "$@"
run "OpenBLAS Haswell" OPENBLAS_CORETYPE=Haswell "$@"
run "OpenBLAS Prescott" OPENBLAS_CORETYPE=Prescott "$@"
run "both" NPY_DISABLE_CPU_FEATURES="$off" OPENBLAS_CORETYPE=Prescott "$@"
exit $failed
