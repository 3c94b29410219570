"""Settings: run config (public, from whoever starts a run), node config, and a host's own files."""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fedprikl.checks import check_names
from fedprikl.deployment.policy import SitePolicy, load_policy
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.privacy import Ledger
from fedprikl.protocol import Policy, Roster, SignedPlan, SigningKey
from fedprikl.records import CsvFormat, Place, data_files, place_of
from fedprikl.reference import Reference

Config = Mapping[str, object]
Setting = TypeVar("Setting", str, bool, int, float)
NO_PERIOD = -1  # a run config has no null
OF_A_RUN = frozenset(
    {"clients", "deadline", "grace", "period", "plan", "previous", "request", "step-timeout"}
    | {"everybody", "home", "signer", "wait"}
)
OF_RECORDS = frozenset({"data", "encoding", "separator", "table"})
OF_A_SITE = OF_RECORDS | {"identity", "ledger", "policy", "reference", "roster"}
BLANK = {"tab": "\t", "space": " "}  # separators, as a setting names them
OF_A_SIMULATED_SITE = frozenset({"num-partitions", "partition-id"})


def home_folder() -> Path:
    """The folder of this host: $FEDPRIKL_HOME, else ~/.fedprikl."""
    return Path(os.environ.get("FEDPRIKL_HOME") or Path.home() / ".fedprikl")


def is_joined(folder: Path) -> bool:
    """Whether `fedprikl federation join` made this folder of a site."""
    return (folder / "member.json").exists()


def now() -> str:
    """The time of this host: ISO 8601, with an offset."""
    return datetime.now(UTC).isoformat()


class Home:
    """The files of an aggregator, or of a site. Private keys never leave the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reference = folder / "ref.json"  # Pi
        self.references = folder / "references"  # others, by their fingerprints
        self.plans = folder / "plans"  # the same of plans, beside plan.json
        self.policy = folder / "policy.toml"  # of a site: what it allows
        self.log = folder / "log.db"  # of a site: what was asked, what left, and what it cost
        self.signing_key = folder / "signing.pem"  # SECRET: signs releases
        self.sealing_key = folder / "sealing.pem"  # SECRET: opens the clients' answers
        self.identity = folder / "identity.pem"  # SECRET: of a site; a roster knows it by this key
        self.roster = folder / "roster.txt"  # who may take part
        self.ledger = folder / "ledger.db"  # what has been spent
        self.memory = folder / "site.db"  # of a site: what it answered, how often it was counted
        self.cohorts = folder / "cohorts.json"  # of an aggregator: who was in a cohort with whom
        self.metrics = folder / "metrics.prom"  # for Prometheus
        self.releases = folder / "releases"  # one file per release
        # One file per round that clients refused. Not public: a reason may depend on records.
        self.refusals = folder / "refusals"

    def find_reference(self, fingerprint: str) -> Reference | None:
        """The reference with this fingerprint, among ref.json and the files of references/."""
        for path in (self.references / f"{fingerprint}.json", *self.reference_files()):
            if path.exists() and (found := Reference.load(path)).fingerprint == fingerprint:
                return found
        return None

    def wanted_reference(self, fingerprint: str, *, whose: str, advice: str) -> Reference:
        """The reference with this fingerprint; an `InvalidInputError` if it is not there."""
        found = self.find_reference(fingerprint)
        if found is None:
            words = self.wrong_reference(fingerprint, whose)
            raise InvalidInputError(f"{words[0].upper()}{words[1:]}. {advice}")
        return found

    def reference_files(self) -> list[Path]:
        """Where references are."""
        found = [self.reference, *sorted(self.references.glob("*.json"))]
        return [path for path in found if path.exists()]

    def wrong_reference(self, fingerprint: str, whose: str) -> str:
        """That a party does not have the reference of a plan, with both fingerprints."""
        known = [Reference.load(path).fingerprint[:16] for path in self.reference_files()]
        return (
            f"the plan is about the reference {fingerprint[:16]}, and {whose} has "
            f"{', '.join(dict.fromkeys(known)) or 'none'}"
        )

    def find_plan(self, name: str) -> Path:
        """The file of a plan, by its fingerprint or by the name of a file in the folder."""
        if not re.fullmatch("[0-9a-f]{64}", name):
            return self.folder / name
        known = {path: signed.plan.fingerprint for path, signed in self.known_plans().items()}
        for path in (self.plans / f"{name}.json", *known):  # a copy elsewhere may be unsigned
            if known.get(path) == name:
                return path
        words = ", ".join(
            f"{fingerprint[:16]} ({path.name})" for path, fingerprint in known.items()
        )
        raise InvalidInputError(
            f"The aggregator does not have the plan {name[:16]}; it has {words or 'none'}. Put "
            f"your plan into {self.plans.name}/ of its folder."
        )

    def newest_serial(self, lineage: tuple[str, str]) -> int:
        """The newest serial number of a lineage's plans in the folder, by signed plans only."""
        plans = self.known_plans().values()
        mine = (each for each in plans if each.lineage == lineage and each.is_signed_by(lineage[0]))
        return max((each.plan.validity.serial for each in mine), default=0)

    def known_plans(self) -> dict[Path, SignedPlan]:
        """All plans of the folder; files that hold none that can be read are passed over."""
        files = {*self.folder.glob("*.json"), *self.plans.glob("*.json")}
        found = {}
        for path in sorted(files - {self.reference, self.cohorts}):
            with suppress(InvalidInputError):
                found[path] = SignedPlan.load(path)
        return found

    def has_budget(self, population: str) -> bool:
        """Whether there is a ledger with a budget of this population."""
        if not self.ledger.exists():
            return False
        with Ledger.open(self.ledger, create=False) as ledger:
            return population in ledger.populations()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """What a run is asked to do, from the run config. Times are in seconds."""

    home: Home
    plan: Path
    request: str  # of the organiser; the release repeats it, so that no older one passes for it
    clients: int
    wait: float  # for them to connect
    timeout: float  # of a step, for anybody's answer
    grace: float  # of a step, for the last few, whom the round can do without
    period: int | None = None  # of the plan's series
    previous: str = ""  # fingerprint of the release before it; empty: it is the first
    deadline: datetime | None = None  # when whoever asked stops waiting
    signer: str = ""  # the public key whose release whoever asked accepts; empty: any
    everybody: bool = False  # no release unless all of the roster are counted, or all connected

    @classmethod
    def of(cls, config: Config, *, home: Path | None = None) -> "RoundSettings":
        """Checked; a plan is a file of the home folder.

        The home is the host's to choose: $FEDPRIKL_HOME, unless the program that calls says
        otherwise. A run's config comes from outside and never does.
        """
        check_names(config, OF_A_RUN, "of a run")
        if _read(config, "home", ""):
            raise InvalidInputError(
                "A run cannot choose the aggregator's folder. Set FEDPRIKL_HOME on its host, for "
                "the process that runs the ServerApp, and leave `home` out of the run config."
            )
        name = _read(config, "plan", "plan.json")
        if Path(name).name != name or not name.isprintable():
            raise InvalidInputError("`plan` is a fingerprint, or a file of the home folder.")
        folder = home or home_folder()
        once = config.get("period", NO_PERIOD) == NO_PERIOD
        return cls(
            home=Home(folder),
            plan=Home(folder).find_plan(name),
            request=_digits(config, "request", "at most 64 digits 0-9a-f", least=0),
            clients=_read(config, "clients", 3),
            wait=_read(config, "wait", 60.0),
            timeout=_read(config, "step-timeout", 120.0),
            grace=_read(config, "grace", 30.0),
            period=None if once else _read(config, "period", 0),
            previous=_digits(config, "previous", "the fingerprint of a release, " + _OR_EMPTY),
            deadline=_instant(config, "deadline"),
            signer=_digits(config, "signer", "a public key, " + _OR_EMPTY),
            everybody=_read(config, "everybody", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What a site has decided, from its node config. A run cannot change any of it."""

    data: Place
    policy: SitePolicy
    home: Home  # identity and roster: for a plan with a roster; ledger: without a trusted party
    form: CsvFormat = field(default_factory=CsvFormat)  # of its CSV files

    def load_identity(self) -> SigningKey | None:
        """SECRET: the key that a roster knows this site by; None if it has none."""
        return SigningKey.load(self.home.identity) if self.home.identity.exists() else None

    def load_roster(self) -> Roster | None:
        """Who may take part, as this site knows it; None if it does not."""
        return Roster.load(self.home.roster) if self.home.roster.exists() else None

    @classmethod
    def of(cls, config: Config) -> "NodeSettings":
        """Checked. A node of the simulation engine has a number instead of a configuration.

        The policy is read anew for every message: who changes it need not start the site again,
        and a site whose policy is gone or misspelt answers nobody.
        """
        if "partition-id" in config and "data" not in config:
            check_names(config, OF_A_SIMULATED_SITE, "of a simulated site")
            return cls._simulated(_read(config, "partition-id", 0))
        check_names(config, OF_A_SITE, "of a site")
        for name in config:
            if not _read(config, name, "").strip():
                raise InvalidInputError(
                    f"The setting `{name}` is empty. Fill it in or leave it out."
                )
        if "data" not in config:
            raise DeploymentError(
                "The node config lacks `data`. Start the SuperNode with --node-config "
                '\'data="..." policy="..."\'.'
            )
        home = Home(home_folder())
        for name in OF_A_SITE - OF_RECORDS:
            setattr(home, name, Path(_read(config, name, str(getattr(home, name)))))
        data = place_of(_read(config, "data", ""), _read(config, "table", ""))
        usual = CsvFormat()
        separator = _read(config, "separator", usual.separator)
        form = CsvFormat(BLANK.get(separator, separator), _read(config, "encoding", usual.encoding))
        return cls(data=data, policy=load_policy(home.policy), home=home, form=form)

    @classmethod
    def _simulated(cls, number: int) -> "NodeSettings":
        """The n-th file of $FEDPRIKL_HOME/clients, trusting whoever signed the plan there.

        All nodes have one home, so a roster would know them as one.
        """
        home = Home(home_folder())
        signed = SignedPlan.load(home.folder / "plan.json")
        files = data_files(home.folder / "clients")
        limits = Policy(
            organisers=frozenset({signed.signer}), most_counts=signed.plan.budget.releases
        )
        policy = SitePolicy(organisers={"organiser": signed.signer}, limits=limits)
        return cls(data=files[number % len(files)], policy=policy, home=home)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStart:
    """What a site is to be started with."""

    home: Home
    data: Place
    relay: str  # host:port
    roots: Path | None  # certificates the relay is trusted by; None: the system's
    node_key: Path
    form: CsvFormat = field(default_factory=CsvFormat)  # of its CSV files


def data_settings(place: Place, form: CsvFormat | None = None) -> dict[str, str]:
    """The settings of a site that name its records, and how it writes them; paths are absolute."""
    if isinstance(place, Path):
        own, usual = form or CsvFormat(), CsvFormat()
        written = {"data": str(place.resolve())}
        if own.separator != usual.separator:
            names = {separator: name for name, separator in BLANK.items()}
            written["separator"] = names.get(own.separator, own.separator)
        if own.encoding != usual.encoding:
            written["encoding"] = own.encoding
        return written
    file = place.file
    url = place.url if file is None else f"{place.kind}:{file.resolve()}"
    return {"data": url, "table": place.table}


def _read(config: Config, name: str, default: Setting) -> Setting:
    """A setting, of the type that its default has."""
    value: Any = config.get(name, default)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InvalidInputError(f"The setting `{name}` is true or false, without quotes.")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise InvalidInputError(f'The setting `{name}` is a text, in quotes: {name}="...".')
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= sys.float_info.max:
        raise InvalidInputError(f"The setting `{name}` is a finite number that is not negative.")
    if isinstance(default, int) and not float(value).is_integer():
        raise InvalidInputError(f"The setting `{name}` is a whole number.")
    return type(default)(value)


_OR_EMPTY = "64 digits 0-9a-f, or empty"


def _digits(config: Config, name: str, what: str, *, least: int = 64) -> str:
    text = _read(config, name, "")
    if not re.fullmatch(f"([0-9a-f]{{{least},64}})?", text):
        raise InvalidInputError(f"The setting `{name}` is {what}.")
    return text


def _instant(config: Config, name: str) -> datetime | None:
    text = _read(config, name, "")
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        found = datetime.min
    if found is not None and found.tzinfo is None:
        raise InvalidInputError(f"The setting `{name}` is a time with an offset, ISO 8601.")
    return found
