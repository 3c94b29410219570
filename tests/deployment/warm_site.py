"""A preloaded process that answers each message in a fork, as the warm executor does.

A program: it reads pickled (message, context) pairs from standard input and writes, for each, a
pickled (answer, context, modules that the fork had, threads of this process before the fork).
"""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

from fedprikl.deployment.flower.executor import check_can_fork, preload


def answered(message: Any, context: Any, threads: int) -> bytes:
    from fedprikl.deployment.flower.client import app

    answer = app(message, context)
    return pickle.dumps((answer, context, sorted(sys.modules), threads))


def main() -> None:
    preload("site", ledger="--ledger" in sys.argv)
    check_can_fork()
    while True:
        try:
            message, context = pickle.load(sys.stdin.buffer)  # noqa: S301  of the test
        except EOFError:
            return
        threads = len(list(Path("/proc/self/task").iterdir()))
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answered(message, context, threads))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            sys.stdout.buffer.write(pipe.read())
        sys.stdout.buffer.flush()
        os.wait()


if __name__ == "__main__":
    main()
