"""Settings: run config (public, from whoever starts a run), node config, and a host's own files."""

import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path

from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import Policy, Roster, SignedPlan, SigningKey
from fedprikl.records import data_files

Config = Mapping[str, object]
NO_PERIOD = -1  # a run config has no null
LONGEST_VALIDITY = timedelta(days=400)  # of a plan, unless a site says otherwise
OF_A_RUN = frozenset(
    {"clients", "deadline", "grace", "period", "plan", "previous", "request", "step-timeout"}
    | {"home", "signer", "wait"}
)
OF_A_SITE = frozenset(
    {"data", "identity", "ledger", "organiser", "population", "reference", "roster"}
    | {"largest-delta", "largest-epsilon", "least-corruption", "longest-validity-days"}
    | {"most-counts", "most-points", "require-roster", "smallest-cohort", "smallest-threshold"}
    | {"whole-clients-only"}
)
OF_A_SIMULATED_SITE = frozenset({"num-partitions", "partition-id"})


def check_names(given: Collection[str], known: Collection[str], what: str) -> None:
    """Refuses a setting that nobody reads: a limit that is misspelt would not hold."""
    plain = {name.lower(): name for name in known}
    for name in given:
        if name not in known:
            near = get_close_matches(name.lower(), plain, n=1)
            names = ", ".join(sorted(known))
            advice = f"Did you mean {plain[near[0]]}?" if near else f"There are: {names}."
            raise InvalidInputError(f"There is no setting {name!r:.80} {what}. {advice}")


def home_folder() -> Path:
    """The folder of this host: $FEDPRIKL_HOME, else ~/.fedprikl."""
    return Path(os.environ.get("FEDPRIKL_HOME") or Path.home() / ".fedprikl")


@dataclass(frozen=True, slots=True)
class Home:
    """The files of an aggregator, or of a site. Private keys never leave the folder."""

    folder: Path

    @property
    def reference(self) -> Path:
        """Pi."""
        return self.folder / "ref.json"

    @property
    def signing_key(self) -> Path:
        """SECRET: signs releases."""
        return self.folder / "signing.pem"

    @property
    def sealing_key(self) -> Path:
        """SECRET: opens the clients' answers."""
        return self.folder / "sealing.pem"

    @property
    def identity(self) -> Path:
        """SECRET: of a site; signs its messages where the plan names a roster."""
        return self.folder / "identity.pem"

    @property
    def roster(self) -> Path:
        """Who may take part."""
        return self.folder / "roster.txt"

    @property
    def ledger(self) -> Path:
        """What has been spent."""
        return self.folder / "ledger.db"

    @property
    def memory(self) -> Path:
        """Of a site: what it has answered and how often it was counted."""
        return self.folder / "site.db"

    @property
    def cohorts(self) -> Path:
        """Of an aggregator: who was in a cohort with whom."""
        return self.folder / "cohorts.json"

    @property
    def metrics(self) -> Path:
        """For Prometheus."""
        return self.folder / "metrics.prom"

    @property
    def releases(self) -> Path:
        """One file per release."""
        return self.folder / "releases"

    @property
    def refusals(self) -> Path:
        """One file per round that clients refused. Not public: a reason may depend on records."""
        return self.folder / "refusals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a step waits, in seconds."""

    timeout: float  # for anybody
    grace: float  # for the last few, whom the round can do without


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """What a run is asked to do, from the run config."""

    home: Home
    plan: Path
    request: str  # of the organiser; the release repeats it, so that no older one passes for it
    clients: int
    wait: float
    patience: Patience
    period: int | None = None  # of the plan's series
    previous: str = ""  # fingerprint of the release before it; empty: it is the first
    deadline: datetime | None = None  # when whoever asked stops waiting
    signer: str = ""  # the public key whose release whoever asked accepts; empty: any

    @classmethod
    def of(cls, config: Config, *, home: Path | None = None) -> "RoundSettings":
        """Checked; a plan is a file of the home folder.

        The home is the host's to choose: $FEDPRIKL_HOME, unless the program that calls says
        otherwise. A run's config comes from outside and never does.
        """
        check_names(config, OF_A_RUN, "of a run")
        if _text(config, "home", ""):
            raise InvalidInputError(
                "A run cannot choose the aggregator's folder. Set FEDPRIKL_HOME on its host, for "
                "the process that runs the ServerApp, and leave `home` out of the run config."
            )
        name = _text(config, "plan", "plan.json")
        if Path(name).name != name or not name.isprintable():
            raise InvalidInputError("`plan` is the name of a file in the home folder, not a path.")
        request = _text(config, "request", "")
        if not re.fullmatch("[0-9a-f]{0,64}", request):
            raise InvalidInputError("The setting `request` is at most 64 digits 0-9a-f.")
        previous = _text(config, "previous", "")
        if not re.fullmatch("([0-9a-f]{64})?", previous):
            raise InvalidInputError(
                "The setting `previous` is the fingerprint of a release, 64 digits 0-9a-f, or "
                "empty."
            )
        signer = _text(config, "signer", "")
        if not re.fullmatch("([0-9a-f]{64})?", signer):
            raise InvalidInputError(
                "The setting `signer` is a public key, 64 digits 0-9a-f, or empty."
            )
        folder = home or home_folder()
        return cls(
            home=Home(folder),
            plan=folder / name,
            request=request,
            clients=_whole(config, "clients", 3),
            wait=_number(config, "wait", 60.0),
            patience=Patience(
                timeout=_number(config, "step-timeout", 120.0),
                grace=_number(config, "grace", 30.0),
            ),
            period=None
            if config.get("period", NO_PERIOD) == NO_PERIOD
            else _whole(config, "period", 0),
            previous=previous,
            deadline=_instant(config, "deadline"),
            signer=signer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What a site has decided, from its node config. A run cannot change any of it."""

    data: Path
    reference: Path
    policy: Policy
    identity: Path  # what a plan with a roster needs ...
    roster: Path
    ledger: Path  # ... and one without a trusted aggregator
    memory: Path

    def load_identity(self) -> SigningKey | None:
        """SECRET: the key that a roster knows this site by; None if it has none."""
        return SigningKey.load(self.identity) if self.identity.exists() else None

    def load_roster(self) -> Roster | None:
        """Who may take part, as this site knows it; None if it does not."""
        return Roster.load(self.roster) if self.roster.exists() else None

    @classmethod
    def of(cls, config: Config) -> "NodeSettings":
        """Checked. A node of the simulation engine has a number instead of a configuration."""
        if "partition-id" in config and "data" not in config:
            check_names(config, OF_A_SIMULATED_SITE, "of a simulated site")
            return cls._simulated(_whole(config, "partition-id", 0))
        check_names(config, OF_A_SITE, "of a site")
        for name in ("data", "reference", "organiser"):
            if not _text(config, name, ""):
                raise DeploymentError(
                    f"The node config lacks `{name}`. Start the SuperNode with --node-config "
                    '\'data="..." reference="..." organiser="..."\'.'
                )
        for name, value in config.items():
            if isinstance(value, str) and not value.strip():  # like "any population"
                raise InvalidInputError(
                    f"The setting `{name}` is empty. Fill it in or leave it out."
                )
        usual, home = Policy(), Home(home_folder())
        return cls(
            data=Path(_text(config, "data", "")),
            reference=Path(_text(config, "reference", "")),
            identity=Path(_text(config, "identity", "") or home.identity),
            roster=Path(_text(config, "roster", "") or home.roster),
            ledger=Path(_text(config, "ledger", "") or home.ledger),
            memory=home.memory,
            policy=Policy(
                organiser=_public_key(config, "organiser"),
                largest_epsilon=_number(config, "largest-epsilon", usual.largest_epsilon),
                largest_delta=_number(config, "largest-delta", usual.largest_delta),
                most_points=_whole(config, "most-points", usual.most_points),
                smallest_cohort=_whole(config, "smallest-cohort", usual.smallest_cohort),
                smallest_threshold=_whole(config, "smallest-threshold", usual.smallest_threshold),
                require_roster=_flag(config, "require-roster", usual.require_roster),
                most_counts=_whole(config, "most-counts", usual.most_counts),
                least_corruption=_number(config, "least-corruption", usual.least_corruption),
                longest_validity=_days(config, "longest-validity-days", LONGEST_VALIDITY),
                population=_text(config, "population", usual.population),
                units=frozenset({"client"})
                if _flag(config, "whole-clients-only", False)
                else usual.units,
            ),
        )

    @classmethod
    def _simulated(cls, number: int) -> "NodeSettings":
        """The n-th file of $FEDPRIKL_HOME/clients, trusting whoever signed the plan there.

        All nodes have one home, so a roster would know them as one.
        """
        home = Home(home_folder())
        signed = SignedPlan.load(home.folder / "plan.json")
        files = data_files(home.folder / "clients")
        return cls(
            data=files[number % len(files)],
            reference=home.reference,
            identity=home.identity,
            roster=home.roster,
            ledger=home.ledger,
            memory=home.memory,
            policy=Policy(organiser=signed.signer, most_counts=signed.plan.budget.releases),
        )


def _text(config: Config, name: str, default: str) -> str:
    value = config.get(name, default)
    if not isinstance(value, str):
        raise InvalidInputError(f'The setting `{name}` is a text, in quotes: {name}="...".')
    return value


def _public_key(config: Config, name: str) -> str:
    key = _text(config, name, "").strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise InvalidInputError(
            f"The setting `{name}` is no public key: it has 64 hexadecimal digits, as "
            '`fedprikl plan` prints them after "signed by".'
        )
    return key


def _instant(config: Config, name: str) -> datetime | None:
    text = _text(config, name, "")
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        found = datetime.min
    if found is not None and found.tzinfo is None:
        raise InvalidInputError(f"The setting `{name}` is a time with an offset, ISO 8601.")
    return found


def _number(config: Config, name: str, default: float) -> float:
    value = config.get(name, default)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= sys.float_info.max
    ):
        raise InvalidInputError(f"The setting `{name}` is a finite number that is not negative.")
    return float(value)


def _whole(config: Config, name: str, default: int) -> int:
    value = _number(config, name, default)
    if not value.is_integer():
        raise InvalidInputError(f"The setting `{name}` is a whole number.")
    return int(value)


def _days(config: Config, name: str, default: timedelta) -> timedelta:
    return timedelta(days=min(_number(config, name, default.days), timedelta.max.days))


def _flag(config: Config, name: str, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise InvalidInputError(f"The setting `{name}` is true or false, without quotes.")
    return value
