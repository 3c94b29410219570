"""What `import fedprikl` offers: little, documented, and fast."""

import doctest
import inspect
import subprocess
import sys

import pytest

import fedprikl
from fedprikl.errors import FedPriKLError

NAMES = [name for name in fedprikl.__all__ if name != "__version__"]
HEAVY = {"numpy", "scipy", "pyarrow", "narwhals", "cryptography", "opendp", "rich", "typer"}


def is_plain_error(found: object) -> bool:
    """Errors of the tree share the example of their base."""
    return inspect.isclass(found) and issubclass(found, FedPriKLError)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    found = getattr(fedprikl, name)
    text = inspect.getdoc(found) or ""
    assert text.strip(), name
    if is_plain_error(found) and found is not FedPriKLError:
        return
    assert doctest.DocTestParser().get_examples(text), name


def test_every_way_to_make_a_reference_has_an_example() -> None:
    for name in ("fit", "fit_images", "from_counts", "from_probabilities"):
        assert ">>> " in (getattr(fedprikl.Reference, name).__doc__ or ""), name


def test_names_are_those_of_their_rooms() -> None:
    assert set(fedprikl.__all__) <= set(dir(fedprikl))
    assert "TYPE_CHECKING" not in dir(fedprikl)
    with pytest.raises(AttributeError, match="no attribute 'Score'"):
        fedprikl.Score  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from fedprikl import nothing_at_all")


def test_importing_it_imports_no_library() -> None:
    code = "import sys, fedprikl, fedprikl.cli; print(*{n.partition('.')[0] for n in sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(said.stdout.split())
    code = code.replace("print", "fedprikl.Reference; print")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" in said.stdout.split()


def test_ctrl_c_during_the_imports_prints_nothing() -> None:
    """The signal comes while the command's modules are being imported."""
    code = (
        "import os, signal, sys\n"
        "from fedprikl.cli import main\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'numpy':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "main()"
    )
    line = [sys.executable, "-c", code, "keys", "--help"]
    ended = subprocess.run(line, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
