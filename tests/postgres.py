"""A real PostgreSQL server for tests: of the machine's own packages, in a folder of its own.

It listens on a socket in that folder only. As root it runs as the user nobody, as PostgreSQL never
runs as root.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adbc_driver_postgresql import dbapi

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
ACCESS = "local all reader scram-sha-256\nlocal all all trust\n"  # a reader needs a password
PASSWORD = "hunter2"  # noqa: S105


def server_programs() -> Path | None:
    """The folder of initdb and pg_ctl; None if no server is installed here."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = [folder for place in PLACES for folder in Path("/").glob(place[1:])]
    return max((each for each in folders if (each / "initdb").exists()), default=None)


NO_SERVER = (
    "" if server_programs() else "PostgreSQL is not installed (Debian: apt-get install postgresql)"
)


@contextmanager
def running_server() -> Iterator[str]:
    """The address of a database on a new server, as its owner sees it."""
    programs, folder = server_programs(), Path(tempfile.mkdtemp())
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "nobody", "cwd": folder}
        shutil.chown(folder, "nobody")

    def call(program: str, *words: str) -> None:
        done = subprocess.run(
            [f"{programs}/{program}", *words], capture_output=True, text=True, **user
        )
        assert done.returncode == 0, done.stdout + done.stderr

    data = folder / "data"
    try:
        call(
            "initdb",
            "-D",
            str(data),
            "-U",
            "owner",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "-N",
            "--locale=C",
        )
        (data / "pg_hba.conf").write_text(ACCESS)
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        call("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            url = f"postgresql:///postgres?host={folder}&user=owner"
            execute(url, f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
            yield url
        finally:
            call("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def execute(url: str, *statements: str) -> None:
    """Changes the database."""
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)


def ingest(url: str, name: str, table: Any) -> None:
    """A new table with the rows of an Arrow table."""
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
        cursor.adbc_ingest(name, table)
