"""Whole rounds over real secure sums: equal to plain sums, with dropouts, whoever is trusted."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprikl import BudgetExceededError, InvalidInputError, ReleaseRefused
from fedprikl.checks import Ints
from fedprikl.divergence import skewed_divergence
from fedprikl.errors import PaperCalibrationWarning, SecureSumError
from fedprikl.estimation import BatchCounts, weighted_score
from fedprikl.paper import no_privacy, printed_aggregator
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Aggregator,
    Client,
    ClientSession,
    Invitation,
    Policy,
    RoundDriver,
    Server,
    SignedPlan,
    trust_of,
)
from fedprikl.protocol.run import InMemoryTransport
from fedprikl.protocol.sums import ScoredSum
from fedprikl.reference import iid_points
from fedprikl.secure_sum import Leaves, SumAggregator
from tests.protocol.worlds import AT, InsecureNoNoise, World, budgeted, noisy_counts

SENT = {Leaves.BEFORE_ECHO, Leaves.BEFORE_UNMASK}  # those who leave here have sent their input


def run_exact(world: World, leaves: dict[str, Leaves], **changes: Any) -> None:
    """The release without noise is, to the bit, the score of the plain sums of who took part."""
    plan = world.plan(**changes)
    result = world.run(plan, leaves=leaves, source=InsecureNoNoise())
    left_early = {name for name, when in leaves.items() if when not in SENT}
    plain = world.plain_counts(result, left_early)
    assert result.release.value == weighted_score(plain, trust_of(plan).score)
    assert sum(o.included for o in result.release.cohorts) == len(world.held) - len(left_early)


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("when", [None, *Leaves])
def test_a_secure_round_is_the_plain_sum_to_the_bit(batches: int, when: Leaves | None) -> None:
    leaves = {} if when is None else {"c2": when, "c17": when}
    run_exact(World.make(), leaves, batches=batches, points=4)


def test_dropouts_in_every_step_at_once() -> None:
    world = World.make(clients=40)
    leaves = {f"c{7 * i}": when for i, when in enumerate(Leaves)}
    run_exact(world, leaves, cohort=20)


def test_cohort_and_batch_are_separate() -> None:
    world = World.make(clients=30)
    one = world.run(world.plan(cohort=30), source=InsecureNoNoise())
    many = world.run(world.plan(cohort=5), source=InsecureNoNoise())
    assert len(one.release.cohorts) == 1
    assert len(many.release.cohorts) == 6
    assert one.release.value == many.release.value


def test_both_kinds_of_trust_go_the_same_way() -> None:
    world = World.make()
    for trust in ("aggregator", "none"):
        result = world.run(world.plan(trust=trust, epsilon=1.0))
        assert result.release.trust == trust
        assert np.isfinite(result.release.value)


def test_the_papers_estimators_work_on_the_same_counts() -> None:
    """They are for experiments: no plan asks for them."""
    world = World.make()
    plain = no_privacy(world.plain_counts(world.run(world.plan(points=12)), set()))
    assert np.isfinite(plain.value)
    points = iid_points(world.reference.probabilities, 6, batches=2, rng=np.random.default_rng(1))
    held = world.held.reshape(2, 12, -1).sum(axis=1)
    counts = BatchCounts(points, held[points.batch, points.cells], held.sum(axis=1))
    with pytest.warns(PaperCalibrationWarning):
        paper = printed_aggregator(counts, epsilon=1.0).privacy
    assert paper.holds is False
    assert paper.epsilon > 1


def test_the_release_says_what_it_is_about() -> None:
    world = World.make()
    plan = world.plan()
    release = world.run(plan, leaves={"c1": Leaves.BEFORE_INPUT}).release
    assert release.plan == plan.fingerprint
    assert release.reference == world.reference.fingerprint
    assert release.answers[0].target == "D(Pi || 0.01 Pi + 0.99 P)"
    assert release.privacy.epsilon <= 1.0
    assert sum(c.clients for c in release.cohorts) == 24
    assert sum(c.included for c in release.cohorts) == 23
    assert release.interval is not None
    low, high = release.interval
    assert 0 <= low <= high <= np.log(100)  # equal if the noise throws the value far out
    assert min(max(release.value, 0), np.log(100)) == pytest.approx(
        np.clip(release.value, low, high)
    )
    assert release.software == "fedprikl test"


def test_noisy_counts_allow_any_divergence_afterwards() -> None:
    """With almost no noise, the other direction of the divergence can be read off the release."""
    world = World.make(clients=60)
    plan = world.plan(trust="none", epsilon=60.0, delta=0.01, points=12, cohort=60)
    release = world.run(plan).release
    noisy = noisy_counts(release)
    counts = np.append(np.maximum(noisy.counts, 0), max(noisy.out_of_domain[0], 0))
    held = world.held.sum(axis=0)
    pi = np.append(world.reference.probabilities[:-1], 0)
    keep = counts[:-1] > 0
    free = skewed_divergence(
        counts[:-1][keep] / counts[:-1][keep].sum(), pi[:-1][keep] / pi[:-1][keep].sum(), skew=0.0
    )
    truth = skewed_divergence(held[:-1] / held[:-1].sum(), pi[:-1], skew=0.0)
    assert free == pytest.approx(truth, abs=0.05)
    assert noisy.records == (int(held.sum()),)


def test_the_baseline_is_noised_before_anybody_sees_it() -> None:
    """Six noises that are 0 once in 52: all of them once in 1e10."""
    world = World.make(clients=40)
    plan = world.plan(trust="none", cohort=40, epsilon=0.1)
    release = world.run(plan).release
    plain = world.plain_counts(world.run(plan, source=InsecureNoNoise()), set())
    assert list(noisy_counts(release).counts) != plain.counts.tolist()
    assert release.privacy.trust.startswith("nobody")
    assert 0.099 < release.privacy.epsilon <= 0.1


def test_the_budget_is_charged_once_and_the_release_anchored(tmp_path: Path) -> None:
    world = World.make()
    with budgeted(tmp_path / "ledger.db", epsilon=2.5) as ledger:
        first = world.run(world.plan(), ledger=ledger)
        assert ledger.account("testers").spent == pytest.approx(1.0, abs=1e-6)
        assert first.release.ledger is not None
        assert first.release.ledger.count == 2  # budget, reservation
        world.run(world.plan(trust="none", cohort=24), ledger=ledger)
        assert ledger.account("testers").spent == pytest.approx(2.0, abs=1e-3)
        with pytest.raises(BudgetExceededError, match="would fit"):
            world.run(world.plan(), ledger=ledger)
        assert ledger.account("testers").spent == pytest.approx(2.0, abs=1e-3)


class Empty(Client):
    """Takes part without a single record."""

    def _vector(self, invitation: Invitation) -> Ints:
        return np.zeros_like(super()._vector(invitation))


def nothing_charged(ledger: Ledger) -> bool:
    account = ledger.account("testers")
    return account.spent == 0 and not account.open_rounds


@pytest.mark.parametrize("charged", [True, False])
def test_a_batch_without_records_refuses_the_release(charged: bool, tmp_path: Path) -> None:
    world = World.make()
    world.client_type = Empty
    with budgeted(tmp_path / "ledger.db") as ledger:
        words = "no records left.* Start another round"
        if charged:
            words = "but the budget stays charged.* another round needs more budget"
        with pytest.raises(ReleaseRefused, match=words):
            world.run(world.plan(), ledger=ledger if charged else None)
        spent = ledger.account("testers").spent
        assert spent == pytest.approx(1.0 if charged else 0.0)  # sums were opened


def test_clients_without_room_ask_for_another_plan() -> None:
    world = World.make()
    with pytest.raises(ReleaseRefused, match=r"no room .* Plan again with a larger most_records\."):
        world.run(world.plan(most_records=1))


def test_everybody_gone_releases_and_charges_nothing(tmp_path: Path) -> None:
    world = World.make()
    for when in (Leaves.BEFORE_ADVERT, Leaves.BEFORE_INPUT, Leaves.BEFORE_UNMASK):
        with budgeted(tmp_path / f"{when.value}.db") as ledger:
            with pytest.raises(ReleaseRefused):
                world.run(world.plan(), leaves=dict.fromkeys(world.names(), when), ledger=ledger)
            assert nothing_charged(ledger)


@pytest.mark.parametrize("when", [Leaves.BEFORE_ADVERT, Leaves.BEFORE_UNMASK])
def test_without_a_trusted_party_nothing_opened_is_nothing_charged(
    when: Leaves, tmp_path: Path
) -> None:
    world = World.make()
    with budgeted(tmp_path / "ledger.db") as ledger:
        with pytest.raises(ReleaseRefused):
            world.run(
                world.plan(trust="none", cohort=24),
                leaves=dict.fromkeys(world.names(), when),
                ledger=ledger,
            )
        assert nothing_charged(ledger)


def test_a_cohort_under_its_threshold_is_dropped_and_the_rest_goes_on() -> None:
    world = World.make(clients=24)
    plan = world.plan()
    members = world.run(plan).round.cohorts[0].members  # the same deal for the same seed
    result = world.run(plan, leaves=dict.fromkeys(members, Leaves.BEFORE_INPUT))
    assert [bool(outcome.reason) for outcome in result.release.cohorts] == [True, False, False]
    assert np.isfinite(result.release.value)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
@pytest.mark.parametrize("early", [True, False])
def test_the_budget_is_reserved_before_a_sum_is_opened(
    trust: str, early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused budget leaves every sum closed; where it is known, nobody is even asked.

    Somebody else may spend the budget while the round goes on (`early` is then too early).
    """
    world, opened, asked = World.make(), [], []
    monkeypatch.setattr(SumAggregator, "unmask", lambda _: opened.append(1))
    if not early:
        monkeypatch.setattr(Ledger, "check", lambda *_, **__: None)
    join = Client.join

    def noted(who: Client, message: bytes, *, at: str) -> ClientSession:
        asked.append(1)
        return join(who, message, at=at)

    monkeypatch.setattr(Client, "join", noted)
    with budgeted(tmp_path / "ledger.db", epsilon=0.5) as ledger:
        with pytest.raises(BudgetExceededError):
            world.run(world.plan(trust=trust, cohort=24), ledger=ledger)
        assert nothing_charged(ledger)
    assert opened == []
    assert bool(asked) is not early


def test_a_round_that_fails_after_a_sum_was_opened_stays_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sums were seen: nothing gives the budget back, whatever happens then."""
    world = World.make()
    monkeypatch.setattr(ScoredSum, "open", _fail)
    with budgeted(tmp_path / "ledger.db") as ledger:
        with pytest.raises(ArithmeticError):
            world.run(world.plan(), ledger=ledger)
        assert ledger.account("testers").spent == pytest.approx(1.0)


def test_sums_that_were_opened_are_never_refunded(tmp_path: Path) -> None:
    """One batch is lost, the other was opened: there is no release, and it is charged."""
    world = World.make(clients=24)
    plan = world.plan(batches=2, cohort=12)
    lost = world.run(plan).round.cohorts[1].members  # the same deal for the same seed
    with budgeted(tmp_path / "ledger.db") as ledger:
        with pytest.raises(ReleaseRefused, match="stays charged, because sums were opened"):
            world.run(plan, leaves=dict.fromkeys(lost, Leaves.BEFORE_INPUT), ledger=ledger)
        account = ledger.account("testers")
        assert account.spent == pytest.approx(1.0)
        assert [known.state for known in account.rounds] == ["open"]


def _fail(*_: object, **__: object) -> None:
    raise ArithmeticError


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_round_releases_once_also_without_a_ledger(trust: str) -> None:
    """A second release would carry fresh noise, and two of them give away the value."""
    world = World.make(clients=9)
    kept: list[Aggregator] = []

    class Kept(Aggregator):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            kept.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedprikl.protocol.run.Aggregator", Kept)
        world.run(world.plan(cohort=9, trust=trust))
    with pytest.raises(ReleaseRefused, match="round has ended"):
        kept[0].release(at=AT, rng=np.random.default_rng(0))


def test_roles_refuse_to_be_used_out_of_order() -> None:
    world = World.make()
    server = Server(SignedPlan.sign(world.plan(), world.key), world.reference)
    current = server.open_round(
        world.names(), rng=np.random.default_rng(0), randomness=lambda n: b"r" * n
    )
    aggregator = Aggregator(current, key=world.key, ledger=None, software="x")
    with pytest.raises(ReleaseRefused, match="still open"):
        aggregator.release(at=AT, rng=np.random.default_rng(0))
    assert "cohorts" in repr(aggregator)
    aggregator.drop(0, "gone")
    with pytest.raises(InvalidInputError, match="closed already"):
        aggregator.close(0, at=AT)


@pytest.mark.parametrize(("broken", "charged"), [(0, False), (1, True)])
def test_all_or_nothing_is_charged_only_if_a_sum_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, charged: bool
) -> None:
    """The sum of one of two cohorts does not open: of the first, or after the first was."""
    world = World.make()
    server = Server(SignedPlan.sign(world.plan(cohort=12), world.key), world.reference)
    rng = np.random.default_rng(0)
    current = server.open_round(world.names(), rng=rng, randomness=lambda n: b"r" * n)
    with budgeted(tmp_path / "ledger.db") as ledger:
        aggregator = Aggregator(current, key=world.key, ledger=ledger, software="x", everybody=True)
        driver = RoundDriver(current, aggregator)
        for _ in driver.drive(InMemoryTransport(world.clients(), at=AT)):
            assert ledger.account(server.plan.population).spent == 0

        def fail() -> None:
            raise SecureSumError("a secret does not open")

        monkeypatch.setattr(aggregator.sums[broken], "unmask", fail)
        said = "stays charged" if charged else "is not charged"
        with pytest.raises(ReleaseRefused, match=f"12 clients were lost.*{said}"):
            driver.release(at=AT, rng=rng)
        assert (ledger.account(server.plan.population).spent > 0) is charged
        assert set(aggregator.outcomes) == set(range(broken + 1))  # no further sum was opened
        if not charged:  # nobody would pay for what is opened now
            with pytest.raises(ReleaseRefused, match="round has ended"):
                driver.release(at=AT, rng=rng)
            assert ledger.account(server.plan.population).spent == 0


def test_a_release_is_made_only_once() -> None:
    world = World.make()
    result = world.run(world.plan())
    server = Server(SignedPlan.sign(world.plan(), world.key), world.reference)
    other = world.run(world.plan(), seed=2)
    with pytest.raises(InvalidInputError, match="another round"):
        server.accept(other.round, result.release.to_bytes(), aggregator=world.key.public)
    with pytest.raises(InvalidInputError, match="not signed by the aggregator"):
        server.accept(result.round, result.release.to_bytes(), aggregator="00" * 32)


@pytest.mark.parametrize(
    ("names", "changes", "words"),
    [
        (["a", "a", "b"], {}, "named twice"),
        (["a", "b"], {}, "too few"),
        (["a", "b", "c", "d"], {"batches": 2}, "too few"),
    ],
)
def test_rounds_that_cannot_be_opened(
    names: list[str], changes: dict[str, Any], words: str
) -> None:
    world = World.make()
    server = Server(SignedPlan.sign(world.plan(**changes), world.key), world.reference)
    with pytest.raises(InvalidInputError, match=words):
        server.open_round(names, rng=np.random.default_rng(0), randomness=lambda n: b"r" * n)


def test_refusals_are_told_when_nothing_is_left() -> None:
    world = World.make()
    world.policy = Policy(largest_epsilon=0.5)
    with pytest.raises(ReleaseRefused, match="24 clients refused, the first because: epsilon 1"):
        world.run(world.plan())


def test_a_client_that_refuses_is_left_out_and_named() -> None:
    world = World.make()
    clients = world.clients()
    clients["c5"] = Client(
        world.held[5], world.reference, policy=Policy(largest_epsilon=0.1), randomness=os.urandom
    )
    result = world.run(world.plan(), clients=clients)
    assert list(result.refusals) == ["c5"]
    assert sum(outcome.included for outcome in result.release.cohorts) == 23


@pytest.mark.parametrize("kind", ["no privacy", "paper", "exact", "baseline", "", None])
def test_no_plan_releases_without_privacy_that_a_budget_could_be_charged_for(kind: Any) -> None:
    with pytest.raises(InvalidInputError, match="Trust is 'aggregator' or 'none'"):
        World.make().plan(trust=kind)


def test_a_server_needs_the_reference_of_its_plan() -> None:
    world = World.make()
    plan = world.plan(reference="0" * 64)
    with pytest.raises(InvalidInputError, match="another reference"):
        Server(SignedPlan(plan), world.reference)
