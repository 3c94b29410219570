"""A whole federation on 127.0.0.1: relay, aggregator and sites, each in processes of its own.

The processes are those of docs/deployment.md: `fedprikl relay` with TLS and SuperNode
authentication, `fedprikl aggregator` in a domain of its own, one `fedprikl site` per client.
Everything lives in one folder; leaving the `with` block ends every process, whatever happened
inside.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from fedprikl.deployment.settings import Home
from fedprikl.deployment.site_memory import read_memory
from fedprikl.deployment.tls import write_certificates, write_node_key
from fedprikl.protocol import SigningKey

__all__ = ["Loopback"]

BIN = Path(sys.executable).parent
CONNECTION = "loopback"
AT_ONCE = 10
_MARK = "LOOPBACK_OF_FEDPRIKL"
_REGISTER = """
import sys
from flwr.cli.app import app
for key in sys.argv[2:]:
    app(["supernode", "register", key, sys.argv[1]], standalone_mode=False)
"""


class Loopback:
    """The processes of one federation and the folders they use.

    aggregator/  home of the aggregator: plan, reference, keys, ledger, releases
    relay/       the SuperLink: certificates, database, log
    site0/ ...   one per client: its node key, its memory, its log
    """

    def __init__(
        self,
        folder: Path,
        *,
        days: float = 1.0,
        poll: float = 0.5,
        niceness: int = 0,
        server_app: str = "",
    ) -> None:
        self.folder, self._poll, self._niceness = folder, poll, niceness
        self._server_app = server_app
        self.aggregator, self.relay = folder / "aggregator", folder / "relay"
        for each in (self.aggregator, self.relay, folder / "flwr"):
            each.mkdir()
        write_certificates(self.relay, days=days)
        self.port, self.health_port = free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n'
            f"root-certificates = {json.dumps(str(self.relay / 'ca.pem'))}\n",
            encoding="utf-8",
        )

    @property
    def database(self) -> Path:
        """What the relay stores."""
        return self.relay / "state.db"

    def environment(self, home: Path | None = None) -> dict[str, str]:
        """For processes of this federation: nothing of the user's own Flower is touched."""
        # What Python compiles is kept for the next process, whatever the shell says.
        own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return own | {
            _MARK: str(self.folder),
            "FEDPRIKL_HOME": str(home or self.aggregator),
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(self._poll),
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start_relay(self) -> None:
        """The SuperLink, and the process that runs ServerApps in the aggregator's domain."""
        self.start_superlink()
        self.start_aggregator()

    def start_superlink(self) -> None:
        """The SuperLink alone."""
        self.start(
            "superlink",
            f"{BIN / 'fedprikl'} relay {self.relay}",
            {"name": "127.0.0.1", "host": "127.0.0.1", "port": self.port, "health-port": 0},
            home=self.relay,
        )
        self._await_port()

    def start_aggregator(self) -> None:
        """The process that runs ServerApps; it holds the keys, the relay does not."""
        relay = self.relay
        self.start(
            "aggregator",
            f"{BIN / 'fedprikl'} aggregator 127.0.0.1:{self.port}",
            {
                "root-certificates": relay / "ca.pem",
                "secret": relay / "superexec.secret",
                "health-port": self.health_port,
                "server-app": self._server_app,
            },
            home=self.aggregator,
        )

    def start_simulation(self) -> None:
        """Flower's simulation engine instead: nodes without processes or keys of their own."""
        config = self.folder / "flwr" / "config.toml"
        config.write_text(
            f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        self.start(
            "superlink",
            "flower-superlink --insecure --simulation",
            {"host": "127.0.0.1", "port": self.port},
            home=self.aggregator,
        )
        self._await_port()

    def register(self, sites: int) -> range:
        """Makes the folders and node keys of so many sites, and registers them; their numbers."""
        first = len(list(self.folder.glob("site*")))
        numbers = range(first, first + sites)
        keys = []
        for number in numbers:
            site = self.site(number)
            site.mkdir()
            write_node_key(site / "node")
            keys.append(str(site / "node.pub"))
        subprocess.run(
            [sys.executable, "-c", _REGISTER, CONNECTION, *keys],
            env=self.environment(),
            check=True,
            capture_output=True,
            timeout=120,
        )
        return numbers

    def add_sites(self, settings: Sequence[Mapping[str, str | float]]) -> None:
        """Registers and starts one SuperNode per node config."""
        for number, config in zip(self.register(len(settings)), settings, strict=True):
            site = self.site(number)
            own = {"identity": "identity.pem", "roster": "roster.txt", "ledger": "ledger.db"}
            for name in own.keys() & config.keys():
                (site / own[name]).symlink_to(str(config[name]))
            self.start(
                site.name,
                f"nice -n {self._niceness} {BIN / 'fedprikl'} site run 127.0.0.1:{self.port}",
                {
                    "root-certificates": self.relay / "ca.pem",
                    "node-key": site / "node",
                    **{key: config[key] for key in ("data", "reference", "policy")},
                    "health-port": 0,
                },
                home=site,
            )
            if number % AT_ONCE == AT_ONCE - 1:
                self._await_site(number)

    def _await_site(self, number: int, seconds: float = 120.0) -> None:
        """Until a site is connected: a relay on two cores is not for fifty newcomers at once."""
        log = self.site(number) / f"site{number}.log"
        end = time.monotonic() + seconds
        while "SuperNode ID" not in log.read_text(errors="replace"):
            if time.monotonic() > end:
                raise RuntimeError(f"Site {number} did not connect; see {log}.")
            time.sleep(0.2)

    def await_sites(self) -> None:
        """Until all sites are connected."""
        for path in self.folder.glob("site*"):
            self._await_site(int(path.name.removeprefix("site")))

    def cpu(self, party: str) -> float:
        """CPU seconds of "site" (all of them), "aggregator" or "superlink" so far, with forks."""
        groups = {p.pid for name, p in self._processes.items() if name.startswith(party)}
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) in groups:
                    ticks += sum(map(int, fields[11:15]))  # own and of children, user and system
        return ticks / os.sysconf("SC_CLK_TCK")

    def site(self, number: int) -> Path:
        """The folder of a site."""
        return self.folder / f"site{number}"

    def rounds(self, number: int) -> dict[str, int]:
        """The rounds in a site's memory, and how many steps of each it has worked on."""
        path = self.site(number) / "site.db"
        if not path.exists():
            return {}
        return {each.round_id: each.step + 1 for each in read_memory(path).rounds.values()}

    def start(self, name: str, command: str, options: Mapping[str, object], *, home: Path) -> None:
        """Starts a process in a group of its own, with its output in the home folder."""
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        with (home / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*command.split(), *words],
                env=self.environment(home),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Ends a process and all it started, without a goodbye."""
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> int:
        """Asks a process to end; its exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(30)

    def processes(self, home: Path) -> dict[int, str]:
        """The processes of a home, and their command lines."""
        mark, found = f"FEDPRIKL_HOME={home}".encode(), {}
        for pid in self.left_behind():
            with suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    found[pid] = words.decode().strip()
        return found

    def federate(self, *arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """`fedprikl federate` against this federation."""
        return subprocess.run(
            self.federate_command(*arguments),
            env=self.environment(self.folder),
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=self.folder,
            check=False,
        )

    def federate_command(self, *arguments: str) -> list[str]:
        """The command line of a round."""
        key = SigningKey.load_or_create(Home(self.aggregator).signing_key).public
        own = [] if "--signer" in arguments else ["--signer", key]
        return [str(BIN / "fedprikl"), "federate", CONNECTION, *own, *arguments]

    def left_behind(self) -> list[int]:
        """Processes of this federation that are still there, by the mark in their environment."""
        mark = f"{_MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if (
                    mark in entry.read_bytes().split(b"\0")
                    and int(entry.parent.name) != os.getpid()
                ):
                    found.append(int(entry.parent.name))
        return found

    def __enter__(self) -> Self:
        # Both end the block by an exception, so that its processes end too; a shell's background
        # job would otherwise ignore the first and die of the second without cleaning up.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._processes):
            self.kill(name)
        # Again and again: a process that is being killed may just have started another, and one
        # that was killed is still listed until the system has cleared it away.
        end = time.monotonic() + 20.0
        while (left := self.left_behind()) and time.monotonic() < end:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def _await_port(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._processes["superlink"].poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"The SuperLink did not start; see superlink.log in {self.folder}.")


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
