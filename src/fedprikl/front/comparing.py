"""The front door: one comparison, with all parties in this process and real secure sums.

What leaves it (the release, the report, notes, errors) follows from public quantities and from
noised values. There is one exception, for the eyes of the operator who holds all the records: it
refuses records whose place or content the ledger knows under another population's name.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.errors import InvalidInputError
from fedprikl.front.bookkeeping import (
    NO_LEDGER,
    AnyLedger,
    content_digests,
    open_ledger,
    spending,
)
from fedprikl.front.checking import (
    AnyPlan,
    Progress,
    check_plan,
    now,
    rehearse,
    signed_plan,
    silent,
)
from fedprikl.front.local_parties import LocalParties
from fedprikl.front.result import Comparison, library_of
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol import (
    NoisedRound,
    Policy,
    Release,
    RoundResult,
    SigningKey,
    Step,
    StepCount,
    finish_round,
)
from fedprikl.protocol.round import plan_cohort
from fedprikl.records import CsvFormat, NoClient
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves

USUAL = Policy()
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
    client: str | None = None,
    no_client: NoClient = "refuse",
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
    each draws exactly k of its records, afresh; those with fewer fill up from the reference, and
    those without any do so or are left out, as the plan says.

    If the process of an earlier call with this plan and ledger died after its noise was drawn, this
    call finishes that release and returns it: nothing is counted or charged. `notes` say so.

    Parameters
    ----------
    reference
        Pi, or the path of a reference file.
    clients
        The records of each client: a list or a mapping {name: records} of data frames (pandas,
        polars, pyarrow; lazy ones are read some rows at a time), of arrays if the reference has no
        columns, or of CSV and Parquet files (or folders of them); or one folder with a file or
        folder per client. With `client`: one table with the records of all clients: a data frame,
        eager or lazy (polars, DuckDB, ibis, PySpark), a file (or a folder of its files), or
        a `fedprikl.records.DatabaseTable`.
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
    client, no_client
        The column of the table with the ids of the clients, and what becomes of rows without one:
        "drop" leaves them out, "one-each" makes each a client of its own, "refuse" stops before
        anything is charged. The privacy statement says which, whether or not there are any. Which
        client a row belongs to is as public as who takes part. Ids are never shown.
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

    at = now()
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise InvalidInputError(
            f"`rng` is a generator of numpy, like np.random.default_rng(7), got {rng!r:.40}."
        )
    parties = LocalParties(
        signed=signed_plan(plan),
        reference=Reference.of(reference),
        policy=Policy(largest_epsilon=largest_epsilon, largest_delta=largest_delta),
        signer=key,
        form=csv_format or CsvFormat(),
        skip_bad_files=skip_bad_files,
        source=source,
        progress=progress,
        note=tell,
    )
    agreed = parties.plan

    def made(release: Release, book: Ledger | None, **more: Any) -> Comparison:
        sums = plan_cohort(agreed, clients=release.cohorts[0].clients)
        return Comparison(
            release=release,
            plan=agreed,
            payload_bytes=sums.ring().packed_bytes,
            reference=parties.reference,
            library=library_of(clients),
            spending=None if book is None else spending(book, agreed.population, release.round_id),
            notes=tuple(notes),
            **more,
        )

    server = parties.server
    if (earlier := _finish(parties, ledger, at, made, keep)) is not None:
        return earlier
    check_plan(parties.signed, parties.policy, at)
    sources = parties.find(clients) if not client else parties.split(clients, client, no_client)
    trial = rehearse(server, sources.names, parties.reference, parties.policy, at)
    with open_ledger(ledger, map(Path, releases), parties.key.public) as book:
        if book is None:
            tell(NO_LEDGER)
        else:
            records = content_digests(sources.used, agreed.population, progress)
            parties.open_account(book, trial, records, at=at)
        counted = parties.count(sources.used) if sources.counted is None else sources.counted
        members, away = parties.members(counted)

        def found(result: RoundResult) -> Comparison:
            out = sources.bad | away
            return made(result.release, book, refusals=result.refusals, left_out=out)

        result = parties.run(
            members,
            book,
            at=at,
            rng=rng or np.random.default_rng(),
            leaves=leaves,
            report=_steps_done(progress, len(trial.cohorts)),
            no_client=no_client if client else "",
            keep=lambda result: keep(found(result)),
        )
        return found(result)


def _finish(
    parties: LocalParties,
    ledger: AnyLedger,
    at: str,
    made: Callable[..., Comparison],
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
    plan = parties.plan
    opened = nullcontext(ledger) if isinstance(ledger, Ledger) else Ledger.open(ledger)
    with opened as book:

        def finished(kept: NoisedRound, release: Release) -> None:
            parties.note(FINISHED.format(population=plan.population, at=kept.at))
            found.append(made(release, book, refusals={}, left_out={}))
            keep(found[0])

        finish_round(book, plan, parties.reference, key=lambda: parties.key, at=at, keep=finished)
    return found[0] if found else None


def _steps_done(progress: Progress, cohorts: int) -> Callable[[StepCount], None]:
    done = 0

    def report(_: StepCount) -> None:
        nonlocal done
        done += 1
        progress("secure sums", done, cohorts * len(Step))

    return report
