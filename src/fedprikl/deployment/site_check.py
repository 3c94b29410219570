"""Whether a site is ready for a round: everything that is wrong, at once, before the first one.

The first records are looked at for the site's own people (`site_look`); what is wrong never depends
on them.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from fedprikl.checks import check_instant
from fedprikl.deployment.policy import load_policy
from fedprikl.deployment.settings import Home, SiteStart, is_joined
from fedprikl.deployment.site_log import SiteLog, how_often
from fedprikl.deployment.site_look import look_at_records
from fedprikl.deployment.site_memory import SiteMemory, read_memory
from fedprikl.deployment.tls import (
    CLOCKS,
    certificate_words,
    check_node_key,
    clock_words,
    first_end,
    look_at_relay,
)
from fedprikl.errors import FedPriKLError, InvalidInputError, PolicyRefusal
from fedprikl.protocol import Roster, SignedPlan, SigningKey, trust_of
from fedprikl.protocol.client import check_corruption, check_parts, check_plan
from fedprikl.records.clients import FileRecords
from fedprikl.records.counting import CellReader
from fedprikl.records.database import DatabaseTable
from fedprikl.records.sources import EVER, data_files
from fedprikl.reference import Reference
from fedprikl.reference.domain import Table
from fedprikl.store import replace_file

KIT = "It comes with the organiser's kit: `fedprikl federation start kit.json --check`."
ROOM = 200e6  # bytes that a site should have left


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, and what was found."""

    what: str
    wrong: bool
    words: str
    look: bool = False  # not wrong, but people should look at it; it may depend on records


def check_site(site: SiteStart, *, at: str) -> list[Finding]:
    """Everything that was looked at, in order; one wrong thing hides no other."""
    checks: dict[str, Callable[[], Iterator[str]]] = {
        "policy": partial(_policy, site.home),
        "references": partial(_references, site.home),
        "data": partial(_data, site),
        "node key": partial(_node_key, site),
        "roster": partial(_roster, site.home),
        "relay": partial(_relay, site, at=at),
        "memory and log": partial(_memory, site),
        "disk": partial(_disk, site.home),
    }
    found = [each for what, check in checks.items() for each in _looked(what, check)]
    wrong = {each.what for each in found if each.wrong}
    if not wrong & {"policy", "references"}:
        found += _looked("policy columns", partial(_policy_columns, site.home))
    if not wrong & {"data", "references"}:
        found += _look(site)
    if "policy" not in wrong:  # else every plan would say so once more
        found += _plans(site, at=at)
    return found


def _looked(what: str, check: Callable[[], Iterator[str]]) -> Iterator[Finding]:
    """Findings of one check: what it says is well, what it raises is wrong."""
    try:
        for words in check():
            yield Finding(what, False, words)
    except (FedPriKLError, OSError) as error:
        yield Finding(what, True, str(error))


def _policy(home: Home) -> Iterator[str]:
    policy = load_policy(home.policy)
    asked = {"always": "nobody here is asked first"}.get(
        policy.approve, f"a person here is asked first ({policy.approve})"
    )
    yield f"{', '.join(policy.organisers)} may ask; {asked}"


def _policy_columns(home: Home) -> Iterator[str]:
    """Whether `columns` of the policy are ones of a reference that is here."""
    named = load_policy(home.policy).limits.columns
    if named is None:
        return
    known = set[str]()
    for reference in _distinct(home).values():
        encoder = reference.whole.domain.encoder
        known |= set(encoder.names) if isinstance(encoder, Table) else {"value"}
    if strange := sorted(named - known):
        raise InvalidInputError(
            f"The setting `columns` of {home.policy} names {', '.join(map(repr, strange))}, which "
            f"no reference here has; they have {', '.join(sorted(known))}. Correct it."
        )
    yield f"`columns` names {', '.join(sorted(named))}"


def _references(home: Home) -> Iterator[str]:
    files = home.reference_files()
    if not files:
        advice = KIT if is_joined(home.folder) else "Put the organiser's there, as ref.json."
        raise InvalidInputError(f"There is no reference in {home.folder}. {advice}")
    for fingerprint in _distinct(home):
        yield f"{fingerprint[:16]} can be read"


def _distinct(home: Home) -> dict[str, Reference]:
    """The references of the folder by fingerprint, each once."""
    found = map(Reference.load, home.reference_files())
    return {each.fingerprint: each for each in found}


def _records(site: SiteStart) -> FileRecords:
    by_name = any(
        signed.plan.when.kind == "series" and not signed.plan.when.time_column
        for signed in site.home.known_plans().values()
    )
    files = data_files(site.data, days=EVER) if by_name else data_files(site.data)
    return FileRecords(files, site.form)


def _data(site: SiteStart) -> Iterator[str]:
    records = _records(site)
    for fingerprint, reference in _distinct(site.home).items():
        records.open(CellReader(reference))
        many = "1 file has" if len(records.files) == 1 else f"{len(records.files)} files have"
        if isinstance(site.data, DatabaseTable):
            many = "the table has"
        yield f"{many} the columns of the reference {fingerprint[:16]}"


def _look(site: SiteStart) -> Iterator[Finding]:
    """What the first records show, for each reference; a look that fails says nothing."""
    with suppress(FedPriKLError, OSError):
        records, told = _records(site), set[str]()
        for reference in _distinct(site.home).values():
            for words in look_at_records(records, reference):
                if words not in told:
                    told.add(words)
                    yield Finding("data", False, words, look=True)


def _node_key(site: SiteStart) -> Iterator[str]:
    check_node_key(site.node_key)
    yield f"{site.node_key} can be used"


def _roster(home: Home) -> Iterator[str]:
    if not home.roster.exists():
        if load_policy(home.policy).limits.require_roster:
            advice = KIT if is_joined(home.folder) else "Put the organiser's there, as roster.txt."
            raise InvalidInputError(f"There is none, and the policy requires one. {advice}")
        yield "there is none: plans with a roster are refused"
        return
    roster = Roster.load(home.roster)
    if not home.identity.exists():
        raise InvalidInputError(
            f"There is a roster, and no identity {home.identity}. Make it: `fedprikl keys --site`."
        )
    if bytes.fromhex(SigningKey.load(home.identity).public) not in roster.keys:
        raise InvalidInputError(
            "The roster does not have this site's identity: it was not admitted, or was removed. "
            "Ask the organiser."
        )
    since = datetime.fromtimestamp(home.roster.stat().st_mtime, UTC)
    yield (
        f"{len(roster)} sites, this one among them, as of {since:%Y-%m-%d}; of later changes a "
        "site knows by a new kit only"
    )


def _relay(site: SiteStart, *, at: str) -> Iterator[str]:
    ahead, end = look_at_relay(site.relay, site.roots)
    ends = [end] if site.roots is None else [end, first_end(site.roots)]
    words = certificate_words(min(ends), at=at)
    if abs(ahead) >= CLOCKS:
        raise InvalidInputError(f"{clock_words(ahead, site.relay)} {words}")
    if "ends in" in words:
        raise InvalidInputError(words)
    yield f"{site.relay} answers; {clock_words(ahead, site.relay) or 'the clocks agree.'} {words}"


def _memory(site: SiteStart) -> Iterator[str]:
    memory = SiteMemory(site.home.memory, site.data)
    log = SiteLog(site.home.log, memory.log_head())
    yield f"whole; counts left {how_often(len(log.read().sent))} so far"
    if lacking := len(log.left(memory.logged())):
        yield (
            f"the memory lacks {lacking} of them: it is an older copy, or a process ended as counts"
            " were about to leave. They count all the same"
        )


def _disk(home: Home) -> Iterator[str]:
    home.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = home.folder / ".check"
    replace_file(probe, b"x")
    probe.unlink()
    left = shutil.disk_usage(home.folder).free
    if left < ROOM:
        raise InvalidInputError(
            f"{home.folder} has {left / 1e6:.0f} MB left. Make room: a site that cannot write "
            "answers nothing."
        )
    yield f"{left / 1e9:.1f} GB left in {home.folder}"


def _known(site: SiteStart) -> tuple[dict[str, SignedPlan], set[str]]:
    """The plans that were brought here or asked before, by fingerprint; those not counted yet."""
    found = {each.plan.fingerprint: each for each in site.home.known_plans().values()}
    log = SiteLog(site.home.log)
    book = log.read()
    waiting = found.keys() - {each.plan for each in book.sent}
    asked = [(each.plan, each.document) for each in book.requests.values()]
    for plan, document in asked + [(each.plan, each.document) for each in book.sent]:
        found.setdefault(plan, log.plan_of(document))
    return found, waiting


def _newest(site: SiteStart, known: dict[str, SignedPlan]) -> dict[tuple[str, str], int]:
    """The newest serial number of each organiser and population, as the site goes by it."""
    memory = site.home.memory
    found = dict(read_memory(memory).serials) if memory.exists() else {}
    lineages = {each.lineage for each in known.values()}
    return {each: max(site.home.newest_serial(each), found.get(each, 0)) for each in lineages}


def _plans(site: SiteStart, *, at: str) -> Iterator[Finding]:
    try:
        known, waiting = _known(site)
        newest = _newest(site, known)
    except (FedPriKLError, OSError) as error:
        yield Finding("plans", True, str(error))
        return
    if not known:
        yield Finding("plans", False, "none is known here yet")
    for fingerprint, signed in known.items():
        what, serial = f"plan {fingerprint[:16]}", newest[signed.lineage]
        until = signed.plan.validity.valid_until
        if signed.plan.validity.serial < serial:
            words = f"replaced by a plan with the serial {serial}: it is not answered any more"
            yield Finding(what, False, words)
        elif fingerprint not in waiting and until and check_instant(until) < check_instant(at):
            yield Finding(what, False, "it has expired: it is not answered any more")
        else:
            yield from _looked(what, partial(_plan, site, signed, at=at))


def _plan(site: SiteStart, signed: SignedPlan, *, at: str) -> Iterator[str]:
    """Whether the site would answer a plan; its policy speaks first."""
    home, plan, policy = site.home, signed.plan, load_policy(site.home.policy)
    reference = home.find_reference(plan.reference)
    if reference is None:
        raise PolicyRefusal(home.wrong_reference(plan.reference, "this site"))
    check_plan(signed, policy.limits, reference, at=at)
    check_parts(plan, policy.limits)
    check_corruption(plan, policy.limits)
    own = Roster.load(home.roster).fingerprint if home.roster.exists() else ""
    if plan.roster and plan.roster != own:
        raise PolicyRefusal(
            f"the plan names the roster {plan.roster[:16]}, and this site has {own[:16] or 'none'}."
            " Stop the site, and start it with the newest kit"
        )
    if policy.limits.require_roster and not plan.roster:
        raise PolicyRefusal("the plan names no roster, and this client insists on one")
    if trust_of(plan).shares_noise and not home.has_budget(plan.population):
        raise PolicyRefusal(
            "without a trusted aggregator it needs a budget of its own: `fedprikl ledger`"
        )
    memory = SiteMemory(home.memory, site.data)
    left = SiteLog(home.log, memory.log_head()).left(memory.logged())
    counted, under = memory.counted(signed, left)
    if under >= plan.budget.releases:
        words = _counted(under, plan.budget.releases, "releases")
        yield f"{words}: it is not answered any more"
        return
    most = policy.limits.most_counts
    if counted >= most:
        raise PolicyRefusal(f"{_counted(counted, most, 'most-counts')}: it would be refused")
    if plan.when.kind == "once":
        log = SiteLog(home.log, memory.log_head())
        log.check_year(plan, policy, at=at)
    waits = "" if policy.approve == "always" else f" after a yes ({policy.approve})"
    yield f"would be answered{waits}"


def _counted(times: int, most: int, by: str) -> str:
    return f"its records were counted {times} of {most} times ({by})"
