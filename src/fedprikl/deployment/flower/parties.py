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
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fedprikl.deployment.certificates import (
    check_certificates,
    write_certificates,
    write_secret,
)
from fedprikl.deployment.settings import NodeSettings
from fedprikl.deployment.supervisor import Child, watched
from fedprikl.errors import DeploymentError, InvalidInputError

POLL = 0.5  # seconds between two looks for a task
ENVIRONMENT = {  # of all of Flower's processes
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
# The executor forks, so it must not have threads; a fork may start as many as it likes.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LINK_DAYS = 3650.0  # a certificate lives as long as its process


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSetup:
    """What a site is started with. `config` is its node config, see `NodeSettings`."""

    superlink: str
    roots: Path | None
    node_key: Path
    config: Mapping[str, str | float | bool]
    trusted: Path | None = None  # whose apps the SuperNode accepts
    poll: float = POLL

    def __post_init__(self) -> None:
        """Refuses what the SuperNode would end with, again and again."""
        for name, value in self.config.items():
            if not _is_carried(value):
                raise InvalidInputError(
                    f"Flower cannot carry the setting `{name}`: it has a double quote, an emoji or "
                    "another rare sign, or is too large a number. Write it without; rename a file "
                    "or folder that has one."
                )

    def children(self, private: Path) -> list[Child]:
        """SuperNode and executor, with what they prove themselves by in the folder `private`."""
        write_certificates(private, days=_LINK_DAYS)
        write_secret(private / "secret", os.urandom(32))
        port = _free_port()
        values = " ".join(f"{name}={json.dumps(value)}" for name, value in self.config.items())
        options = {
            "--superlink": self.superlink,
            "--root-certificates": self.roots,
            "--auth-supernode-private-key": self.node_key,
            "--trusted-entities": self.trusted,
            "--node-config": values,
            "--isolation": "process",
            "--host": "127.0.0.1",
            "--port": port,
            "--superexec-auth-secret-file": private / "secret",
            "--ssl-ca-certfile": private / "ca.pem",
            "--ssl-certfile": private / "server.pem",
            "--ssl-keyfile": private / "server.key",
        }
        command = watched(
            "fedprikl.deployment.flower.plain_words", "flower_supernode", *_words(options)
        )
        executor = _executor(
            "site",
            {
                "--address": f"127.0.0.1:{port}",
                "--root-certificates": private / "ca.pem",
                "--secret": private / "secret",
                "--poll": self.poll,
            },
            private / "executor.beat",
            *(["--ledger"] if NodeSettings.of(self.config).ledger.exists() else []),
        )
        return [Child(name="supernode", command=command, environment=ENVIRONMENT), executor]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorSetup:
    """What an aggregator is started with."""

    superlink: str
    roots: Path | None
    secret: Path
    app: str = ""  # another ServerApp that is installed here, "module:name"; for tests
    poll: float = POLL

    def children(self, private: Path) -> list[Child]:
        """The executor; its connection to the relay is the relay's to secure."""
        options = {
            "--address": self.superlink,
            "--root-certificates": self.roots,
            "--secret": self.secret,
            "--poll": self.poll,
            "--app": self.app or None,
        }
        return [_executor("aggregator", options, private / "executor.beat")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySetup:
    """What a relay is started with: `folder` holds what `prepare_relay` made."""

    folder: Path
    host: str
    port: int

    def children(self, _private: Path) -> list[Child]:
        """The SuperLink. ServerApps run elsewhere, at whoever has the secret."""
        folder = self.folder
        options = {
            "--isolation": "process",
            "--host": self.host,
            "--port": self.port,
            "--database": folder / "state.db",
            "--superexec-auth-secret-file": folder / "superexec.secret",
            "--ssl-ca-certfile": folder / "ca.pem",
            "--ssl-certfile": folder / "server.pem",
            "--ssl-keyfile": folder / "server.key",
        }
        words = ["--enable-supernode-auth", *_words(options)]
        command = watched("fedprikl.deployment.flower.tuning", "flower_superlink", *words)
        return [Child(name="superlink", command=command, environment=ENVIRONMENT)]


def prepare_relay(folder: Path, *, name: str, days: float) -> list[str]:
    """Makes the certificates and the secret that are not there yet; the names of the new files.

    `name` is what the others call the relay's host. Certificates belong together: they are made
    elsewhere, and put in place when all are there. What is there is never replaced.
    """
    check_certificates(host=name, days=days)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = []
    certificates = ["ca.pem", "server.pem", "server.key"]
    missing = [file for file in certificates if not (folder / file).exists()]
    if missing == certificates:
        with TemporaryDirectory(dir=folder, prefix=".new-") as fresh:  # owner only
            write_certificates(Path(fresh), host=name, days=days)
            for file in certificates:
                os.rename(Path(fresh, file), folder / file)
        made += certificates
    elif missing:
        raise DeploymentError(
            f"{folder} lacks {' and '.join(missing)}, which belongs to the certificates that are "
            f"there. Put it back, or remove {', '.join(certificates)}: new ones are then made, and "
            "everybody needs the new ca.pem."
        )
    secret = folder / "superexec.secret"
    if not secret.exists() or not secret.stat().st_size:
        write_secret(secret, os.urandom(32))
        made.append("superexec.secret")
    return made


def _is_carried(value: str | float) -> bool:
    """Whether a value of the node config arrives: Flower cuts a text at its first double quote,
    reads the rest as TOML, and its whole numbers have 64 bits.
    """
    try:
        same = bool(tomllib.loads(f"value = {json.dumps(value)}")["value"] == value)
    except ValueError:
        return False
    return same and '"' not in str(value) and not (isinstance(value, int) and abs(value) >> 63)


def _executor(kind: str, options: Mapping[str, object], beat: Path, *flags: str) -> Child:
    words = [*flags, *_words({**options, "--beat": beat, "--parent": os.getpid()})]
    command = [sys.executable, "-m", "fedprikl.deployment.flower.executing", kind, *words]
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
