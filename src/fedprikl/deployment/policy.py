"""A site's policy: policy.toml, which the site writes and no run can change.

It says who may ask, about what, at which cost, when, and whether a person says yes first. Unknown
names and wrong types are refused: a limit that is misspelt would not hold.
"""

import json
import re
import tomllib
from dataclasses import dataclass, fields
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal

from fedprikl.checks import check_names
from fedprikl.documents import read_fields
from fedprikl.errors import DeploymentError, InvalidInputError, PolicyRefusal
from fedprikl.protocol import Policy
from fedprikl.protocol.client import ViewKind
from fedprikl.protocol.series import time_zone

Approve = Literal["always", "new plans", "every round"]  # "always": without asking anybody
WRITTEN = {"never ask": "always"}  # the clearer word of a file for the one that is kept
_USUAL = Policy()
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """The names of policy.toml, with a hyphen for each underscore; who may ask is a table."""

    approve: Approve = "new plans"
    populations: tuple[str, ...] | None = None
    views: tuple[ViewKind, ...] | None = None
    columns: tuple[str, ...] | None = None
    largest_epsilon: float = _USUAL.largest_epsilon
    largest_delta: float = _USUAL.largest_delta
    largest_epsilon_per_year: float | None = None
    largest_delta_per_year: float = _USUAL.largest_delta
    smallest_cohort: int = _USUAL.smallest_cohort
    require_roster: bool = False
    hours: str | None = None
    zone: str = "UTC"
    most_counts: int = _USUAL.most_counts
    most_points: int = _USUAL.most_points
    smallest_threshold: int = _USUAL.smallest_threshold
    least_corruption: float = 0.0
    longest_validity_days: float = 400.0
    whole_clients_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """What a site allows: the limits of every client, and its own."""

    organisers: dict[str, str]  # name -> public key
    limits: Policy
    approve: Approve = "always"
    epsilon_per_year: float | None = None  # of all releases about one record; None: no limit
    delta_per_year: float = _USUAL.largest_delta
    hours: tuple[time, time] | None = None
    zone: str = "UTC"

    def name_of(self, key: str) -> str:
        """Of an organiser, by its public key."""
        return next((name for name, own in self.organisers.items() if own == key), "unknown")

    def check_hours(self, at: str) -> None:
        """Raises `PolicyRefusal` outside of the hours in which the site answers."""
        if self.hours is None:
            return
        start, end = self.hours
        now = datetime.fromisoformat(at).astimezone(time_zone(self.zone)).time()
        inside = start <= now < end if start < end else (now >= start or now < end)
        if not inside:
            raise PolicyRefusal(
                f"it answers from {start:%H:%M} to {end:%H:%M} ({self.zone}) only; ask again then"
            )


def load_policy(path: Path) -> SitePolicy:
    """The policy of a file; anything in it that is not understood is refused."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except FileNotFoundError:
        raise DeploymentError(
            f"There is no policy {path}. Without one a site answers nobody: make it with `fedprikl "
            "site policy`."
        ) from None
    except OSError as error:
        raise InvalidInputError(f"Cannot read the policy {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, or of the path
        raise InvalidInputError(
            f"The policy {path} is no TOML file: {error}.{_capital_hint(text)}"
        ) from None
    try:
        return _parse(found)
    except InvalidInputError as error:
        raise InvalidInputError(f"The policy {path}: {error}") from None


def _capital_hint(text: str) -> str:
    """That true and false begin with small letters, if a line says otherwise."""
    found = re.search(r"^\s*([a-z-]+)\s*=\s*(True|False|TRUE|FALSE)\b", text, re.MULTILINE)
    return f" `{found[1]}`: write true or false, in small letters." if found else ""


def _parse(found: dict[str, Any]) -> SitePolicy:
    names = {each.name.replace("_", "-"): each for each in fields(PolicyFile)}
    check_names(found, {*names, "organisers"}, "of a policy")
    organisers = _organisers(found.pop("organisers", None))
    for name, value in found.items():
        if value in ("", []) or (isinstance(value, list) and "" in value):
            raise InvalidInputError(f"`{name}` is empty. Fill it in, or leave the line out.")
    own = {each.name: found.get(name, each.default) for name, each in names.items()}
    if isinstance(own["approve"], str):
        own["approve"] = WRITTEN.get(own["approve"], own["approve"])
    try:
        file = read_fields(PolicyFile, own)
    except InvalidInputError as error:
        said = str(error).replace("The field '", "`").replace("' must be", "` must be")
        name = said.partition("`")[2].partition("`")[0]
        if isinstance(own.get(name), str) and said.endswith(("number.", "true or false.")):
            said = f"{said.removesuffix('.')}, without quotes."
        for clear, kept in WRITTEN.items():
            said = said.replace(f"'{kept}'", f"'{clear}'")
        said = said.replace("_", "-")
        if isinstance(own.get(name), str) and said.endswith("must be a list."):
            one = json.dumps([own[name]], ensure_ascii=False)
            said = f"{said.removesuffix('.')}, also of one: {one}."
        raise InvalidInputError(said) from None
    return SitePolicy(
        organisers=organisers,
        limits=_limits(file, frozenset(organisers.values())),
        approve=file.approve,
        epsilon_per_year=file.largest_epsilon_per_year,
        delta_per_year=file.largest_delta_per_year,
        hours=_hours(file.hours),
        zone=time_zone(file.zone).key,
    )


def _organisers(found: Any) -> dict[str, str]:
    """Names and public keys, at least one."""
    if not isinstance(found, dict) or not found:
        raise InvalidInputError(
            'it needs the table [organisers], with a line NAME = "PUBLIC KEY" for each who may '
            'ask; `fedprikl plan` prints the key after "signed by".'
        )
    for name, key in found.items():
        if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{64}", key):
            raise InvalidInputError(
                f"the organiser {name!r:.60} has no public key: it has 64 digits 0-9a-f, as "
                '`fedprikl plan` prints them after "signed by".'
            )
        if not name.isprintable():
            raise InvalidInputError("the name of an organiser has printable characters only.")
    return dict(found)


def _limits(file: PolicyFile, organisers: frozenset[str]) -> Policy:
    """The limits of every client; refuses numbers of the file that are no limits."""
    names = {each.name for each in fields(Policy)} & {each.name for each in fields(PolicyFile)}
    own = {name: getattr(file, name) for name in names}
    for name in ("populations", "columns", "views"):
        own[name] = None if own[name] is None else frozenset(own[name])
    for name in ("smallest_cohort", "smallest_threshold", "most_counts", "most_points"):
        if own[name] < 1:
            raise InvalidInputError(f"`{name.replace('_', '-')}` must be at least 1.")
    if not 0 <= own["least_corruption"] < 0.5:
        raise InvalidInputError("`least-corruption` must be a share from 0 to under one half.")
    if not 0 < file.longest_validity_days <= 36500:
        raise InvalidInputError("`longest-validity-days` must be above 0, and at most 36500.")
    yearly = file.largest_epsilon_per_year
    if yearly is not None and not yearly > 0:
        raise InvalidInputError("`largest-epsilon-per-year` must be above 0.")
    for name in ("largest_delta", "largest_delta_per_year"):
        if not 0 < getattr(file, name) < 1:  # a delta of 1 limits nothing
            raise InvalidInputError(f"`{name.replace('_', '-')}` must be above 0 and under 1.")
    return Policy(
        organisers=organisers,
        longest_validity=timedelta(days=file.longest_validity_days),
        units=frozenset({"client"}) if file.whole_clients_only else _USUAL.units,
        **own,
    )


def _hours(text: str | None) -> tuple[time, time] | None:
    """From one time of the day up to another, maybe over midnight."""
    if text is None:
        return None
    found = _HOURS.fullmatch(text)
    if not found or found[1] + found[2] == found[3] + found[4]:
        raise InvalidInputError('`hours` must be like "08:00-18:00".')
    first, minute, last, end = map(int, found.groups())
    return time(first, minute), time(last, end)


def usual_policy(organiser: str) -> SitePolicy:
    """The policy of a site as `fedprikl federation join` makes it."""
    return _parse(tomllib.loads(policy_text({"organiser": organiser}, require_roster=True)))


def policy_text(organisers: dict[str, str], *, require_roster: bool) -> str:
    """A policy.toml with everything that can be said, and what it means; `#` marks a default."""
    _organisers(organisers)
    keys = "\n".join(f'"{name}" = "{key}"' for name, key in organisers.items())
    roster = "require-roster = true" if require_roster else "# require-roster = true"
    return _TEXT.format(roster=roster, keys=keys)


_TEXT = """\
# The policy of this site. It holds for every round of a federation (`fedprikl site run`), and no
# run can change it. Lines with # are not in force. A name that is misspelt is refused, and so is
# everything else until it is mended. `fedprikl report` has options of its own.

# Does a person say yes first? "never ask": no ("always" means the same: it always takes part).
# "new plans": once for each plan. "every round".
# `fedprikl site requests` shows what waits for a yes; `fedprikl site approve` says it.
approve = "never ask"

# The most that a release may cost a record, and all releases of 365 days together.
largest-epsilon = 1.0
largest-epsilon-per-year = 2.0
# largest-delta = 1e-5
# largest-delta-per-year = 1e-5

# How often the same records may be counted, over all plans together.
# most-counts = 1

# A sum has the counts of at least so many sites; of known ones only.
# smallest-cohort = 3
{roster}

# What may be asked: about which populations; about the whole table, columns, pairs of columns;
# about which columns. Left out: about any.
# populations = ["sites"]
# views = ["whole", "columns", "pairs"]
# columns = ["age", "plan"]

# When it answers.
# hours = "08:00-18:00"
# zone = "Europe/Amsterdam"

# Rarely needed: the most counts of a round, the fewest that unmask a sum, the share of colluding
# sites that a plan must reckon with, how long a plan may be valid, only plans that protect all
# that a site holds.
# most-points = 10000
# smallest-threshold = 2
# least-corruption = 0.0
# longest-validity-days = 400
# whole-clients-only = false

# Who may ask: names of your own, and public keys that must have signed a plan.
[organisers]
{keys}
"""
