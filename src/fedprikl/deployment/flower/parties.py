"""The processes of each party of a federation over Flower.

A site is a SuperNode and a warm executor; the aggregator is a warm executor at the relay's Runtime
API; the relay is a SuperLink.

By default Flower lets every user of a machine acquire the messages of a SuperNode there, with the
state of the site, and shows the token of each task in the process list. Here the SuperNode and its
executor share a secret and a certificate, made anew at every start, in a folder that only their
user can read, and a token is never on a command line.
"""

import json
import os
import socket
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from fedprikl.deployment.settings import NodeSettings, SiteStart
from fedprikl.deployment.supervisor import Child, watched
from fedprikl.deployment.tls import (
    CERTIFICATES,
    check_certificates,
    write_certificates,
    write_secret,
)
from fedprikl.errors import DeploymentError, InvalidInputError

POLL = 0.5  # seconds between two looks for a task
ENVIRONMENT = {  # of all of Flower's processes
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",  # their lines go through a pipe
}
# The executor forks, so it must not have threads; a fork may start as many as it likes.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LINK_DAYS = 3650.0  # a certificate lives as long as its process


def check_carried(config: Mapping[str, str | float | bool]) -> None:
    """Refuses a node config with which the SuperNode would end, again and again.

    Flower cuts a text at its first double quote, reads the rest as TOML, and its whole numbers have
    64 bits.
    """
    for name, value in config.items():
        try:
            carried = bool(tomllib.loads(f"value = {json.dumps(value)}")["value"] == value)
        except ValueError:
            carried = False
        large = isinstance(value, int) and abs(value) >> 63
        if not carried or large or '"' in str(value):
            raise InvalidInputError(
                f"Flower cannot carry the setting `{name}`: it has a double quote, an emoji or "
                "another rare sign, or is too large a number. Write it without; rename a file "
                "or folder that has one."
            )


def site_processes(
    private: Path,
    config: Mapping[str, str | float | bool],
    start: SiteStart,
    *,
    trusted: Path | None,
    poll: float,
) -> list[Child]:
    """SuperNode and executor, with what they prove themselves by in the folder `private`.

    `config` is the node config, see `NodeSettings`; `trusted`: whose apps the SuperNode accepts.
    """
    write_certificates(private, days=_LINK_DAYS)
    write_secret(private / "secret", os.urandom(32))
    port = _free_port()
    options = {
        "--superlink": start.relay,
        "--root-certificates": start.roots,
        "--auth-supernode-private-key": start.node_key,
        "--trusted-entities": trusted,
        "--node-config": " ".join(f"{name}={json.dumps(value)}" for name, value in config.items()),
        "--isolation": "process",
        "--host": "127.0.0.1",
        "--port": port,
        "--superexec-auth-secret-file": private / "secret",
        **_certificates(private),
    }
    executor = _executor(
        "site",
        {
            "--address": f"127.0.0.1:{port}",
            "--root-certificates": private / "ca.pem",
            "--secret": private / "secret",
            "--poll": poll,
        },
        private / "executor.beat",
        *(["--ledger"] if NodeSettings.of(config).home.ledger.exists() else []),
    )
    return [_flower("supernode", *_words(options)), executor]


def aggregator_processes(
    private: Path,
    *,
    superlink: str,
    roots: Path | None,
    secret: Path,
    app: str = "",
    poll: float = POLL,
) -> list[Child]:
    """The executor; its connection to the relay is the relay's to secure.

    `app`: another ServerApp that is installed here, "module:name"; for tests.
    """
    options = {
        "--address": superlink,
        "--root-certificates": roots,
        "--secret": secret,
        "--poll": poll,
        "--app": app or None,
    }
    return [_executor("aggregator", options, private / "executor.beat")]


def relay_processes(folder: Path, *, host: str, port: int) -> list[Child]:
    """The SuperLink; `folder` holds what `prepare_relay` made.

    ServerApps run elsewhere, at whoever has the secret.
    """
    options = {
        "--isolation": "process",
        "--host": host,
        "--port": port,
        "--database": folder / "state.db",
        "--superexec-auth-secret-file": folder / "superexec.secret",
        **_certificates(folder),
    }
    return [_flower("superlink", "--enable-supernode-auth", *_words(options))]


def prepare_relay(folder: Path, *, name: str, days: float) -> list[str]:
    """Makes the certificates and the secret that are not there yet; the names of the new files.

    `name` is what the others call the relay's host. Certificates belong together: they are made
    elsewhere, and put in place when all are there. What is there is never replaced.
    """
    check_certificates(host=name, days=days)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made: list[str] = []
    missing = tuple(file for file in CERTIFICATES if not (folder / file).exists())
    if missing == CERTIFICATES:
        with TemporaryDirectory(dir=folder, prefix=".new-") as fresh:  # owner only
            write_certificates(Path(fresh), host=name, days=days)
            for file in CERTIFICATES:
                os.rename(Path(fresh, file), folder / file)
        made += CERTIFICATES
    elif missing:
        raise DeploymentError(
            f"{folder} lacks {' and '.join(missing)}, which belongs to the certificates that are "
            f"there. Put it back, or remove {', '.join(CERTIFICATES)}: new ones are then made, and "
            "everybody needs the new ca.pem."
        )
    secret = folder / "superexec.secret"
    if not secret.exists() or not secret.stat().st_size:
        write_secret(secret, os.urandom(32))
        made.append("superexec.secret")
    return made


def _certificates(folder: Path) -> dict[str, object]:
    options = ("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile")
    return {option: folder / file for option, file in zip(options, CERTIFICATES, strict=True)}


def _flower(name: str, *words: str) -> Child:
    """One of Flower's own processes, which ends with this one."""
    command = watched("fedprikl.deployment.flower.privates", f"flower_{name}", *words)
    return Child(name=name, command=command, environment=ENVIRONMENT)


def _executor(kind: str, options: Mapping[str, object], beat: Path, *flags: str) -> Child:
    words = [*flags, *_words({**options, "--beat": beat, "--parent": os.getpid()})]
    command = [sys.executable, "-m", "fedprikl.deployment.flower.executor", kind, *words]
    environment = ENVIRONMENT | _ONE_THREAD
    return Child(name="executor", command=command, environment=environment, beat=beat)


def _words(options: Mapping[str, object]) -> list[str]:
    """The options that have a value."""
    return [
        word for key, value in options.items() if value is not None for word in (key, str(value))
    ]


def _free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
