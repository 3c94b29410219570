"""A plan without a trusted party as tasks of DAP, the Distributed Aggregation Protocol."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from contrib.dap.aggregator_noise import AggregatorNoise, aggregator_noise
from contrib.dap.field import signed
from contrib.dap.prio3 import Prio3, Prio3Histogram, Prio3L1BoundSum, Prio3SumVec
from contrib.dap.report_size import ReportSize, best_chunk_length
from contrib.dap.timing import Timing, timing_of
from fedprikl.checks import check_positive_int
from fedprikl.documents import digest
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan
from fedprikl.protocol.sums import NoisyHistogram

__all__ = ["DapTask", "Proof", "dap_task", "dap_tasks"]

Proof = Literal["sum", "record", "cell"]
View = tuple[str, ...]
DRAFTS = ("draft-ietf-ppm-dap-18", "draft-irtf-cfrg-vdaf-20", "draft-ietf-ppm-l1-bound-sum-02")
TASK_INTERVAL = 1  # code of the extension


@dataclass(frozen=True, slots=True, kw_only=True)
class DapTask:
    """What leader, helper, collector and clients of one DAP task agree on. Public.

    It counts the whole (`view` is empty) or one view: its asked cells, and the rest as the last
    count. Addresses, keys and tokens are the deployment's to add.
    """

    plan: str  # fingerprint
    view: View
    kind: Prio3
    per_client: int  # k   records that a client contributes
    reports_per_client: int  # k if each report proves one record, else 1
    min_batch_size: int  # reports
    timing: Timing
    noise: AggregatorNoise

    @property
    def task_info(self) -> bytes:
        """Binds the task to plan and view: DAP authenticates it with every report and share."""
        return bytes.fromhex(digest({"plan": self.plan, "view": list(self.view)}))

    @property
    def provable(self) -> int:
        """The most records that one client can add with all its reports, whatever it does."""
        return self.reports_per_client * self.kind.provable

    @property
    def upload_bytes(self) -> int:
        """What a client sends for one batch."""
        return self.reports_per_client * ReportSize(self.kind.proof_size).upload

    def measurements(self, counts: Sequence[int]) -> tuple[int | list[int], ...]:
        """What a client's library of Prio3 takes, one for each report. SECRET.

        `counts` are those of the asked cells, and the rest last; they sum to `per_client`.
        """
        found = tuple(map(int, counts))
        if min(found, default=0) < 0 or sum(found) != self.per_client:
            raise InvalidInputError(
                f"The counts of a client are 0 or more and sum to {self.per_client}, the rest "
                "included."
            )
        if self.reports_per_client == 1:
            return (self.kind.measurement(found),)
        if len(found) != self.kind.length:
            raise InvalidInputError(f"The task has {self.kind.length} counts, the rest included.")
        return tuple(cell for cell, count in enumerate(found) for _ in range(count))

    def read(self, aggregate: Sequence[int]) -> tuple[int, ...]:
        """The noisy counts of the collector's aggregate; the rest is the last."""
        if len(aggregate) != self.kind.length:
            raise InvalidInputError(f"The task has {self.kind.length} counts, the rest included.")
        return signed(map(int, aggregate))

    def records(self, reports: int) -> int:
        """N, the records in a batch of so many reports. DAP tells the collector their number."""
        return reports * self.per_client // self.reports_per_client

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the fields of DAP's `TaskConfiguration`, and what it leaves out.

        `service_epsilon` is numerator and denominator, as text: they are exact.
        """
        life = self.timing.life
        extension = {"extension_type": TASK_INTERVAL, "task_interval": life and asdict(life)}
        budget = self.noise.service_epsilon(self.kind)
        return {
            "drafts": list(DRAFTS),
            "plan": self.plan,
            "view": list(self.view),
            "task_info": self.task_info.hex(),
            "time_precision": self.timing.precision,
            "min_batch_size": self.min_batch_size,
            "batch_mode": self.timing.mode,
            "batch_config": "",
            "vdaf_type": self.kind.code,
            "vdaf": self.kind.to_dict(),
            "vdaf_configuration": self.kind.configuration.hex(),
            "extensions": [] if life is None else [extension],
            "reports_per_client": self.reports_per_client,
            "noise": self.noise.to_dict()
            | {"service_epsilon": [str(budget.numerator), str(budget.denominator)]},
        }


def dap_task(plan: Plan, *, clients: int, view: View = (), proof: Proof = "sum") -> DapTask:
    """The DAP task that counts what a plan asks about the whole, or about one view.

    `clients` are expected; a batch of fewer than the plan's dropout allows is not collected.
    `proof` says what the clients prove, where each contributes several records: at most k in "sum"
    (Prio3L1BoundSum), each "record" by a report of its own (k of Prio3Histogram), or at most k in
    each "cell" (Prio3SumVec). Only the last lets a liar add more than k records. With k = 1, "sum"
    and "record" are one Prio3Histogram.

    Examples
    --------
    >>> from fedprikl.protocol import AskedView, Budget, Question, WholeClient
    >>> plan = Plan(
    ...     population="phones",
    ...     reference=64 * "0",
    ...     trust="none",
    ...     unit=WholeClient(1),
    ...     budget=Budget(epsilon=1.0),
    ...     views=(AskedView(points=250),),
    ...     questions=(Question(release="counts"),),
    ... )
    >>> task = dap_task(plan, clients=1000)
    >>> task.to_dict()["vdaf"]
    {'type': 'Prio3Histogram', 'length': 251, 'chunk_length': 17}
    >>> task.min_batch_size, round(task.noise.scale, 6), task.upload_bytes
    (900, 2.0, 5368)
    >>> task.measurements([0, 0, 1] + 248 * [0])
    (2,)

    """
    _check(plan, proof)
    check_positive_int(clients, "clients")
    cells = _blocks(plan)
    if view not in cells:
        raise InvalidInputError(
            "The plan does not ask about this view. Use dap_tasks for all that it asks about."
        )
    k = plan.contribution_bound
    reports = k if proof == "record" else 1
    enough = NoisyHistogram(plan).smallest_cohort(clients)
    return DapTask(
        plan=plan.fingerprint,
        view=view,
        kind=_kind(cells[view] + 1, k, proof),
        per_client=k,
        reports_per_client=reports,
        min_batch_size=enough * reports,
        timing=timing_of(plan),
        noise=aggregator_noise(plan, blocks=len(cells)),
    )


def dap_tasks(plan: Plan, *, clients: int, proof: Proof = "sum") -> tuple[DapTask, ...]:
    """The DAP tasks of a plan: one for the whole if it is asked, and one for each view.

    A client takes part in all of them. One task for each keeps the proof sharp: in one long vector
    a liar could spend the records of all views on one.
    """
    _check(plan, proof)
    return tuple(dap_task(plan, clients=clients, view=view, proof=proof) for view in _blocks(plan))


def _blocks(plan: Plan) -> dict[View, int]:
    """How many cells are asked of the whole (no name) and of each view."""
    return {view.columns: view.points for view in plan.views}


def _kind(length: int, k: int, proof: Proof) -> Prio3:
    """The kind of Prio3 that gives this proof, with the chunk length of the shortest one."""
    bits = k.bit_length()
    if proof == "cell":
        chunk = best_chunk_length(length * bits)
        return Prio3SumVec(length=length, max_measurement=k, chunk_length=chunk)
    if proof == "record" or k == 1:
        return Prio3Histogram(length=length, chunk_length=best_chunk_length(length))
    chunk = best_chunk_length((length + 1) * bits)
    return Prio3L1BoundSum(length=length, max_value=k, chunk_length=chunk)


def _check(plan: Plan, proof: str) -> None:
    """Raises `InvalidInputError` for what DAP cannot do as the plan says it."""
    if plan.trust != "none":
        raise InvalidInputError(
            "A DAP service adds noise to counts and computes no scores: plan with trust='none'."
        )
    if plan.unit.kind != "client":
        raise InvalidInputError(
            "Proofs of DAP bound what a client contributes, so it must be public: plan with "
            "unit='client' and per_client."
        )
    if plan.sums.batches > 1:
        raise InvalidInputError(
            "A DAP task asks all its clients the same: plan with batches=1, or make a plan for "
            "each group of clients."
        )
    if proof not in get_args(Proof):
        raise InvalidInputError(
            f"A proof is about the 'sum', each 'record' or each 'cell', got {proof!r:.40}."
        )
