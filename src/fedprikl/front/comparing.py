"""The front door: one comparison, with all parties in this process and real secure sums.

What leaves it (the release, the report, notes, errors) follows from public quantities and from
noised values. There is one exception, for the eyes of the operator who holds all the records: it
refuses records whose place or content the ledger knows under another population's name.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.front.bookkeeping import (
    NO_LEDGER,
    AnyLedger,
    content_digests,
    epsilon_left,
    open_account,
    open_ledger,
)
from fedprikl.front.client_sources import (
    Source,
    check_enough,
    find_clients,
    stay_away,
    stay_away_words,
)
from fedprikl.front.plan_checks import (
    AnyPlan,
    Progress,
    check_plan,
    now,
    rehearse,
    signed_plan,
    silent,
)
from fedprikl.front.result import Comparison
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol import (
    Aggregator,
    Client,
    NoisedRound,
    Plan,
    Policy,
    Release,
    RoundResult,
    Server,
    SigningKey,
    Step,
    StepCount,
    draw_of,
    finish_round,
    run_round,
)
from fedprikl.records import CsvFormat, Draw, RecordCounts, count_all
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves

USUAL = Policy()
SOFTWARE = f"fedprikl {version('fedprikl')}"
FINISHED = (
    "A release about {population!r} was charged at {at}, and its process ended before it was "
    "handed over. This is that release, finished from its kept numbers: nothing was counted or "
    "charged now. For a new release, run again."
)


def compare(
    reference: Reference | str | Path,
    clients: Any,
    plan: AnyPlan,
    *,
    ledger: AnyLedger = "ledger.db",
    key: SigningKey | str | Path | None = None,
    releases: Iterable[str | Path] = (),
    csv_format: CsvFormat | None = None,
    skip_bad_files: bool = False,
    largest_epsilon: float = USUAL.largest_epsilon,
    largest_delta: float = USUAL.largest_delta,
    leaves: Mapping[str, Leaves] | None = None,
    source: NoiseSource = SECURE_NOISE,
    rng: np.random.Generator | None = None,
    progress: Progress = silent,
    note: Callable[[str], None] | None = None,
    keep: Callable[[Comparison], None] = lambda _: None,
) -> Comparison:
    """Compares the clients' records with the reference in one round, and charges the ledger.

    The same round as `fedprikl estimate` runs: each client counts its own records, every cohort
    runs a secure sum, the aggregator reserves the budget, adds noise and signs:

        value = sum_x w(x) score(h(x)) + noise,    estimating D(Pi || gamma Pi + (1 - gamma) P)
                                                                                 [alg:sys_tagg]

    Bad input raises before anything is counted or charged. Where the plan protects whole clients,
    each draws exactly k of its records, afresh; those without records draw from the reference or
    are left out, as the plan says.

    If the process of an earlier call with this plan and ledger died after its noise was drawn, this
    call finishes that release and returns it: nothing is counted or charged. `notes` say so.

    Parameters
    ----------
    reference
        Pi, or the path of a reference file.
    clients
        The records of each client: a list or a mapping {name: records} of data frames (pandas,
        polars, pyarrow), of arrays if the reference has no columns, or of CSV and Parquet files
        (or folders of them); or one folder with a file or folder per client.
    plan
        What `fedprikl.plan` returned, a `Plan`, a `SignedPlan`, or the path of a plan file.
    ledger
        The path of the ledger, or an open `Ledger`. A population without a budget gets one that
        fits all releases of the plan; once it is spent, `BudgetExceededError` refuses. The same
        records are charged to one population only, whatever it is called. None: no ledger is
        kept, nothing remembers this release, and keeping count of it is up to you.
    key
        The key that signs the release, or its path (made if it is missing); default: a fresh one.
    releases
        Folders with earlier releases, or histories of them. A ledger older than one of them that
        `key` signed is refused; the ledger's own folder is always looked into.
    csv_format, skip_bad_files
        How CSV files are written, and whether sources that cannot be opened are left out.
    largest_epsilon, largest_delta
        A plan whose release spends more is refused.
    leaves
        Which clients vanish before which message, by name: to see what a round does about it.
    source, rng
        Where the noise and the public points come from; to be replaced in examples and tests only.
    progress, note
        Called with (what is done, how much of it, of how much), and with what the user should know.
    keep
        Called with the result before the ledger closes the round. Save it there, and a crash
        cannot lose a release that was charged: until `keep` has returned, the next call with this
        plan finishes it.

    Examples
    --------
    >>> import polars as pl
    >>> import fedprikl as fk
    >>> reference = fk.Reference.fit(pl.DataFrame({"plan": ["basic"] * 80 + ["plus"] * 20}))
    >>> planned = fk.plan(reference, clients=4, records=200, epsilon=1)
    >>> clients = {f"site {i}": pl.DataFrame({"plan": ["plus"] * 50}) for i in range(4)}
    >>> result = fk.compare(reference, clients, planned, ledger=None)
    >>> result.privacy.holds
    True
    >>> print(result.privacy.verdict)
    epsilon 1, delta 0: proved for every data set.
    >>> fk.compare(reference, clients["site 1"], planned)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedprikl.errors.InvalidInputError: The clients are one DataFrame. Give one data frame, ...

    """
    notes: list[str] = []

    def tell(text: str) -> None:
        notes.append(text)
        if note is not None:
            note(text)

    at, form = now(), csv_format or CsvFormat()
    pi = Reference.of(reference)
    signed = signed_plan(plan)
    policy = Policy(largest_epsilon=largest_epsilon, largest_delta=largest_delta)
    server = Server(signed, pi)
    if (earlier := _finish(ledger, signed.plan, pi, key, at, tell, notes, keep)) is not None:
        return earlier
    check_plan(signed, policy, at)
    drawn = signed.plan.unit.kind == "client"
    sources = find_clients(clients, pi, form=form, skip_bad=skip_bad_files, drawn=drawn)
    if sources.bad:
        tell(f"Left out: {sources.bad_words}")
    trial = rehearse(server, sources.used, pi, policy, at)
    signer = _signer(key)
    with open_ledger(ledger, map(Path, releases), signer.public) as book:
        if book is None:
            tell(NO_LEDGER)
        else:
            records = content_digests(sources.used, signed.plan.population, progress)
            aggregator = Aggregator(trial, key=signer, ledger=book, software=SOFTWARE)
            open_account(aggregator, book, signed.plan, records, at=at, note=tell)
        counted = _count_clients(sources.used, pi, form, draw_of(signed.plan), progress)
        away = stay_away(signed.plan, counted)
        if away:
            tell(stay_away_words(len(away), len(counted)))
            check_enough(signed.plan, len(away), len(counted))
        members = {
            name: Client(
                found.counts,
                pi,
                views=found.views,
                policy=policy,
                randomness=os.urandom,
                source=source,
            )
            for name, found in counted.items()
            if name not in away
        }

        def made(result: RoundResult) -> Comparison:
            return Comparison(
                release=result.release,
                plan=signed.plan,
                refusals=result.refusals,
                left_out=sources.bad | away,
                payload_bytes=result.round.cohorts[0].sums.ring().packed_bytes,
                epsilon_left=None if book is None else epsilon_left(book, signed.plan.population),
                notes=tuple(notes),
            )

        result = run_round(
            server,
            members,
            key=signer,
            ledger=book,
            software=SOFTWARE,
            at=at,
            rng=rng or np.random.default_rng(),
            leaves=leaves,
            source=source,
            report=_steps_done(progress),
            keep=lambda result: keep(made(result)),
        )
        return made(result)


def _finish(
    ledger: AnyLedger,
    plan: Plan,
    reference: Reference,
    key: SigningKey | str | Path | None,
    at: str,
    tell: Callable[[str], None],
    notes: list[str],
    keep: Callable[[Comparison], None],
) -> Comparison | None:
    """What an earlier call was charged for and did not end; None if there is nothing of the kind.

    A round that is finished releases what it would have released: the plan may have ended since.
    """
    if not isinstance(ledger, Ledger | str | Path):
        return None
    if not isinstance(ledger, Ledger) and not Path(ledger).exists():
        return None
    found: list[Comparison] = []
    opened = nullcontext(ledger) if isinstance(ledger, Ledger) else Ledger.open(ledger)
    with opened as book:

        def finished(kept: NoisedRound, release: Release) -> None:
            tell(FINISHED.format(population=plan.population, at=kept.at))
            found.append(
                Comparison(
                    release=release,
                    plan=plan,
                    refusals={},
                    left_out={},
                    payload_bytes=kept.payload_bytes(plan),
                    epsilon_left=epsilon_left(book, plan.population),
                    notes=tuple(notes),
                )
            )
            keep(found[0])

        finish_round(book, plan, reference, key=lambda: _signer(key), at=at, keep=finished)
    return found[0] if found else None


def _signer(key: SigningKey | str | Path | None) -> SigningKey:
    if key is None:
        return SigningKey.generate()
    return key if isinstance(key, SigningKey) else SigningKey.load_or_create(key)


def _count_clients(
    sources: Mapping[str, Source],
    reference: Reference,
    form: CsvFormat,
    draw: Draw | None,
    progress: Progress,
) -> Mapping[str, RecordCounts]:
    """Each client counts its own records, or those it draws; more than that stays with it."""
    done = 0

    def count_one(_: str) -> None:
        nonlocal done
        done += 1
        progress("counting records", done, len(sources))

    return count_all(sources, reference, format=form, draw=draw, report=count_one)


def _steps_done(progress: Progress) -> Callable[[StepCount], None]:
    def report(count: StepCount) -> None:
        progress("secure sums", list(Step).index(count.step) + 1, len(Step))

    return report
