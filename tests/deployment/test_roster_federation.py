"""Rounds with a roster over a grid: only known clients take part, and nobody need be trusted."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deploy.small_world import write_plan, write_roster
from flwr.app import Context, Error, Message, RecordDict
from scipy.stats import chi2

import fedprikl.deployment.site
from fedprikl.checks import Ints
from fedprikl.deployment.flower.client import SESSION, pack, unpack
from fedprikl.deployment.settings import Home
from fedprikl.deployment.site import Envelope
from fedprikl.deployment.site_memory import read_memory
from fedprikl.errors import DeploymentError, InvalidInputError, ReleaseRefused
from fedprikl.privacy import AccountedRelease, Ledger
from fedprikl.protocol import Client, Invitation, Release, SigningKey, Step
from fedprikl.protocol.keys import seal_refusal
from fedprikl.secure_sum import Leaves, SumClient
from tests.deployment.fake_grid import FakeFederation, FakeGrid, has_session, read_counters, spent
from tests.deployment.in_process import in_process_release, in_process_value
from tests.protocol.worlds import InsecureNoNoise, noisy_counts

pytestmark = pytest.mark.slow

NOBODY: dict[str, Any] = {"trust": "none", "corruption": 0.0}


def with_roster(federation: FakeFederation, **plan: Any) -> FakeGrid:
    roster = write_roster(federation.home, federation.files)
    write_plan(federation.home, **({"roster": roster.fingerprint} | plan))
    return federation.grid()


def site_spent(file: Path) -> float:
    with Ledger.open(file.with_suffix(".db")) as ledger:
        return ledger.account("sites").spent


def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients without noise, to see what is under it."""
    monkeypatch.setattr(
        fedprikl.deployment.site, "Client", partial(Client, source=InsecureNoNoise())
    )


def asked_of(grid: FakeGrid, what: str) -> list[Message]:
    return [
        message
        for message in grid.carried
        if message.metadata.message_type == f"query.{what}"
        and not message.metadata.reply_to_message_id
    ]


# Rounds that come through


@pytest.mark.parametrize("gone", [None, Step.INPUT])
def test_a_trusted_round_with_a_roster_equals_the_in_process_one(
    federation: FakeFederation, gone: Step | None
) -> None:
    grid = with_roster(federation)
    grid.delay = lambda node, step: math.inf if node == 3 and step is gone else 0.0
    release, lines = federation.run(grid, source=InsecureNoNoise())
    left = {federation.files[2]: Leaves.BEFORE_INPUT} if gone else {}
    assert release.value == in_process_value(federation.home, federation.files, left)
    assert "roster: 8 sites are known, 0 left out" in lines[0]
    assert "8 clients in 1 cohort" in lines[1]
    invited = Invitation.from_bytes(unpack(asked_of(grid, "advertise")[0]).message)
    assert len(invited.sums.roster) == 8
    assert all(site_spent(file) == 0 for file in federation.files)  # the aggregator's to charge


def same_sums(release: Release, other: Release) -> None:
    """Noisy counts by cell; the order of the points is drawn anew in each round."""
    mine, theirs = noisy_counts(release), noisy_counts(other)
    assert dict(zip(mine.cells, mine.counts, strict=True)) == dict(
        zip(theirs.cells, theirs.counts, strict=True)
    )
    assert (mine.out_of_domain, mine.records) == (theirs.out_of_domain, theirs.records)
    assert mine.noise == theirs.noise


@pytest.mark.parametrize("gone", [None, *Step])
def test_without_a_trusted_party_sums_equal_the_in_process_ones(
    federation: FakeFederation, gone: Step | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = with_roster(federation, **NOBODY)
    bare(monkeypatch)
    grid.delay = lambda node, step: (
        math.inf if gone and node == 3 and list(Step).index(step) >= list(Step).index(gone) else 0.0
    )
    release, _ = federation.run(grid, source=InsecureNoNoise())
    leaves = dict(zip(Step, Leaves, strict=True))
    left = {federation.files[2]: leaves[gone]} if gone else {}
    same_sums(release, in_process_release(federation.home, federation.files, left))
    assert release.privacy.trust.startswith("nobody")
    assert spent(federation) == pytest.approx(1.0, abs=1e-6)


def plausible(noise: Ints, variance: float) -> bool:
    """Whether Gaussian noise has this variance; wrong once in 1e9 (chi-squared, two-sided)."""
    total = float(np.square(noise).sum()) / variance
    return bool(2 * min(chi2.cdf(total, len(noise)), chi2.sf(total, len(noise))) > 1e-9)


def test_without_a_trusted_party_the_sum_carries_the_stated_noise(
    federation: FakeFederation,
) -> None:
    """Of three rounds together, so that the check has teeth: 20 times or a twentieth of the
    variance passes with a probability below 1e-15 (chi-squared of 60 noises).
    """
    with_roster(federation, **NOBODY, epsilon=0.5, delta=1e-7, noise="gaussian", releases=3)
    exact = noisy_counts(in_process_release(federation.home, federation.files, {}))
    cells = dict(zip(exact.cells, exact.counts, strict=True))
    noise = []
    for _ in range(3):
        told = noisy_counts(federation.run(federation.grid(most_counts=3))[0])
        noise += [n - cells[cell] for cell, n in zip(told.cells, told.counts, strict=True)]
    variance = told.noise[0].sd ** 2
    assert len(noise) >= 60
    assert plausible(np.array(noise), variance)
    assert not plausible(np.array(noise), 20 * variance)
    assert not plausible(np.array(noise), variance / 20)


# Who is left out


def stranger(grid: FakeGrid, federation: FakeFederation, name: str) -> int:
    """One more node, with the records of the first site and an identity of its own."""
    number = max(grid.contexts) + 1
    grid.contexts[number] = Context(
        run_id=1,
        node_id=number,
        node_config=grid.contexts[1].node_config | {"identity": str(federation.home / name)},
        state=RecordDict(),
        run_config={},
    )
    return number


def test_unknown_nodes_are_left_out_and_asked_nothing(federation: FakeFederation) -> None:
    grid = with_roster(federation)
    SigningKey.generate().save(federation.home / "unknown.pem")
    unknown = stranger(grid, federation, "unknown.pem")
    nobody = stranger(grid, federation, "no such file")
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert "roster: 8 sites are known, 2 left out" in lines[0]
    assert release.value == in_process_value(federation.home, federation.files, {})
    asked = {message.metadata.dst_node_id for message in asked_of(grid, "advertise")}
    assert asked == set(range(1, 9))
    assert {unknown, nobody} & asked == set()
    counters = read_counters(Home(federation.home).metrics)
    assert counters['fedprikl_clients_lost_total{step="identity"}'] == 2


def claim_of(other: int) -> Callable[[FakeGrid, Message], Message]:
    """What an impostor answers: the proof that the node `other` gave."""

    def forge(grid: FakeGrid, asked: Message) -> Message:
        question = Message(
            pack(unpack(asked)), dst_node_id=other, message_type=asked.metadata.message_type
        )
        return Message(grid.deliver(question).content, reply_to=asked)

    return forge


def test_an_impostor_neither_takes_a_place_nor_keeps_its_owner_out(
    federation: FakeFederation,
) -> None:
    """It repeats what the first site says of itself, and is asked first."""
    grid = with_roster(federation)
    impostor = 0
    grid.contexts = {impostor: grid.contexts[1]} | grid.contexts
    deliver = grid.deliver

    def forged(message: Message) -> Message:
        if message.metadata.dst_node_id != impostor:
            return deliver(message)
        assert message.metadata.message_type == "query.identity"
        return claim_of(1)(grid, message)

    grid.deliver = forged  # type: ignore[method-assign]
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert "roster: 8 sites are known, 1 left out" in lines[0]
    assert release.value == in_process_value(federation.home, federation.files, {})


def test_an_impostor_that_is_invited_cannot_use_it(federation: FakeFederation) -> None:
    """A relay passes the proof of node 1 on and then answers in its place: the sum refuses it."""
    grid = with_roster(federation)
    SigningKey.generate().save(federation.home / "impostor.pem")
    honest = str(grid.contexts[1].node_config["identity"])

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id == 1 and asked.metadata.message_type == "query.identity":
            grid.contexts[1].node_config["identity"] = str(federation.home / "impostor.pem")
        return [answer]

    grid.alter = alter
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert Path(honest).exists()
    assert "advertise: 7 of 8 answered, 1 refused" in lines[2]
    gone = {federation.files[0]: Leaves.BEFORE_ADVERT}
    assert release.value == in_process_value(federation.home, federation.files, gone)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _, __: [],
        lambda asked, _: [Message(Error(code=1, reason="secret words"), reply_to=asked)],
        lambda asked, _: [Message(pack(Envelope("f" * 32, b"x" * 96)), reply_to=asked)],
        lambda asked, answer: [
            Message(
                pack(Envelope(unpack(asked).round_id, unpack(answer).message[:-1])), reply_to=asked
            )
        ],
    ],
    ids=["silent", "an error", "another question", "cut off"],
)
def test_a_node_that_does_not_tell_who_it_is_is_left_out(
    federation: FakeFederation, damage: Callable[[Message, Message], list[Message]]
) -> None:
    grid = with_roster(federation)

    def alter(asked: Message, answer: Message) -> list[Message]:
        bad = asked.metadata.dst_node_id == 5 and asked.metadata.message_type == "query.identity"
        return damage(asked, answer) if bad else [answer]

    grid.alter = alter
    release, lines = federation.run(grid, source=InsecureNoNoise())
    assert "roster: 7 sites are known, 1 left out" in lines[0]
    gone = {federation.files[4]: Leaves.BEFORE_ADVERT}
    assert release.value == in_process_value(federation.home, federation.files, gone)
    assert grid.time.seconds < 32
    assert "secret words" not in "".join(lines)


def test_too_few_known_nodes_are_said_so_before_anything_is_asked(
    federation: FakeFederation,
) -> None:
    grid = with_roster(federation)
    for number in (1, 2, 3):
        grid.contexts[number].node_config["identity"] = str(federation.home / "no such file")
    with pytest.raises(DeploymentError, match=r"5 of 8 sites proved .* 6 are needed"):
        federation.run(grid)
    assert asked_of(grid, "advertise") == []
    assert spent(federation) == 0


def test_a_site_whose_identity_is_damaged_tells_only_itself(
    federation: FakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    grid = with_roster(federation)
    federation.files[0].with_suffix(".pem").write_text("no key")
    _, lines = federation.run(grid)
    assert "roster: 7 sites are known, 1 left out" in lines[0]
    assert "is not an unencrypted Ed25519 key" in caplog.text
    refusals = {unpack(message).refusal for message in grid.carried} - {""}
    assert refusals == {"it cannot tell who it is; its own log says why"}


# What a site refuses


def refusals(grid: FakeGrid) -> set[str]:
    return {unpack(message).refusal for message in grid.carried} - {""}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"roster": "no such file"}, "this client has none or no identity"),
        ({"policy": "no such file"}, "not set up for this round"),
    ],
)
def test_a_site_that_lacks_its_part_takes_no_part(
    federation: FakeFederation, config: dict[str, Any], words: str
) -> None:
    grid = with_roster(federation)
    deliver = grid.deliver

    def after_the_check(message: Message) -> Message:
        if message.metadata.message_type != "query.identity":
            grid.contexts[7].node_config.update(config)
        return deliver(message)

    grid.deliver = after_the_check  # type: ignore[method-assign]
    release, _ = federation.run(grid)
    assert release.cohorts[0].included == 7
    (told,) = refusals(grid)
    assert words in told


def test_a_site_may_insist_on_a_roster(federation: FakeFederation) -> None:
    grid = federation.grid(require_roster=True)
    with pytest.raises(ReleaseRefused, match=r"8 clients took no part.*insists on one"):
        federation.run(grid)
    assert with_roster(federation) is not None
    known = federation.grid(require_roster=True)
    assert federation.run(known)[0].cohorts[0].included == 8


def test_the_aggregators_roster_must_be_the_plans(federation: FakeFederation) -> None:
    with_roster(federation)
    Home(federation.home).roster.write_text(
        "\n".join(SigningKey.generate().public for _ in range(8))
    )
    grid = federation.grid()
    with pytest.raises(InvalidInputError, match="names another roster"):
        federation.run(grid)
    Home(federation.home).roster.unlink()
    with pytest.raises(InvalidInputError, match="Cannot read the roster"):
        federation.run(grid)
    assert grid.carried == []


# A server that lies, where nobody is trusted


def fewer_neighbours(asked: dict[str, Any]) -> None:
    asked["sums"] |= {"neighbours": 4, "threshold": 4}


def less_noise(asked: dict[str, Any]) -> None:
    asked["sums"]["minimum"] = 8


def a_stranger_in_the_cohort(asked: dict[str, Any]) -> None:
    place = (asked["index"] + 1) % 8
    asked["sums"]["roster"][place] = SigningKey.generate().public


@pytest.mark.parametrize("lie", [fewer_neighbours, less_noise, a_stranger_in_the_cohort])
def test_a_lying_server_gets_no_session(
    federation: FakeFederation, lie: Callable[[dict[str, Any]], None]
) -> None:
    """It holds the sealing key and may say what it likes; sites look at what the plan says."""
    grid = with_roster(federation, **NOBODY)
    deliver = grid.deliver

    def forged(message: Message) -> Message:
        if message.metadata.message_type != "query.advertise":
            return deliver(message)
        asked, invitation = unpack(message), json.loads(unpack(message).message)
        lie(invitation)
        changed = Message(
            pack(Envelope(asked.round_id, json.dumps(invitation).encode())),
            dst_node_id=message.metadata.dst_node_id,
            message_type="query.advertise",
        )
        return Message(deliver(changed).content, reply_to=message)

    grid.deliver = forged  # type: ignore[method-assign]
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    assert not any(map(has_session, grid.contexts.values()))
    assert all(site_spent(file) == 0 for file in federation.files)


def test_a_server_that_asks_a_few_of_the_roster_gets_no_session(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedprikl.deployment.hosted_round.check_cohorts", lambda *_: None)
    grid = with_roster(federation, **NOBODY)
    for number in (4, 5, 6, 7, 8):
        del grid.contexts[number]
    with pytest.raises(ReleaseRefused, match=r"3 clients took no part.*needs 6 of the roster's 8"):
        federation.run(grid, clients=3)


def test_a_plan_that_splits_the_roster_is_said_to(federation: FakeFederation) -> None:
    grid = with_roster(federation, **NOBODY, cohort=4)
    with pytest.raises(DeploymentError, match=r"A cohort has 4 clients; .* needs 6 of the roster"):
        federation.run(grid)
    assert asked_of(grid, "advertise") == []


def test_a_server_that_asks_again_and_again_meets_the_sites_own_budgets(
    federation: FakeFederation,
) -> None:
    """Its own ledger allows ten rounds of epsilon 1; each site has said two and a half."""
    roster = write_roster(federation.home, federation.files, budget=2.5)
    write_plan(federation.home, **NOBODY, roster=roster.fingerprint, releases=9)
    for number in (1, 2):
        federation.run(federation.grid(most_counts=9))
        assert site_spent(federation.files[0]) == pytest.approx(number, abs=1e-6)
    grid = federation.grid(most_counts=9)
    with pytest.raises(ReleaseRefused, match=r"8 clients took no part.*its own budget"):
        federation.run(grid)
    assert len(asked_of(grid, "advertise")) == 8
    assert asked_of(grid, "share") == []  # known before anything is counted
    assert spent(federation) == pytest.approx(2.0, abs=1e-6)
    assert site_spent(federation.files[0]) == pytest.approx(2.0, abs=1e-6)
    known = read_memory(Home(federation.home.parent / "site").memory)
    assert len(known.counts) == 2 * 8  # what could not be paid was not counted either


def test_a_budget_that_was_spent_in_the_meantime_stops_the_counts(
    federation: FakeFederation,
) -> None:
    """Another round was charged between the first step and the one in which the counts leave."""
    grid = with_roster(federation, **NOBODY)
    deliver = grid.deliver

    def meanwhile(message: Message) -> Message:
        if (message.metadata.dst_node_id, message.metadata.message_type) == (1, "query.input"):
            with Ledger.open(federation.files[0].with_suffix(".db")) as ledger:
                spend = AccountedRelease(proved_epsilon=9.9)
                ledger.reserve("sites", spend, round_id="another", at="2030-01-31T12:00:00Z")
        return deliver(message)

    grid.deliver = meanwhile  # type: ignore[method-assign]
    release, lines = federation.run(grid)
    assert "input: 7 of 8 answered, 1 refused, 0 lost" in lines[4]
    assert release.cohorts[0].included == 7


def test_nobody_pays_for_a_sum_that_one_member_spoils(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member seals nonsense for all others. They see it before their counts leave."""
    with_roster(federation, **NOBODY)
    honest = SumClient._seal

    def seal_nonsense(who: SumClient, peers: list[int]) -> list[tuple[int, bytes]]:
        boxes = honest(who, peers)
        return [(i, bytes(len(box))) for i, box in boxes] if who._index == 2 else boxes

    monkeypatch.setattr(SumClient, "_seal", seal_nonsense)
    grid = federation.grid()
    with pytest.raises(ReleaseRefused, match="took no part"):
        federation.run(grid)
    assert len(asked_of(grid, "input")) == 8
    assert asked_of(grid, "echo") == []
    assert sum(site_spent(file) > 0 for file in federation.files) <= 1  # the member itself


def test_a_site_without_a_budget_takes_no_part(federation: FakeFederation) -> None:
    grid = with_roster(federation, **NOBODY)
    federation.files[0].with_suffix(".db").unlink()
    with Ledger.open(federation.files[1].with_suffix(".other")) as ledger:
        ledger.set_budget("others", epsilon=1.0, delta=1e-6, at="2030-01-31T12:00:00Z")
    grid.contexts[2].node_config["ledger"] = str(federation.files[1].with_suffix(".other"))
    release, _ = federation.run(grid)
    assert release.cohorts[0].included == 6
    assert refusals(grid) == {"without a trusted aggregator it needs a budget of its own"}
    assert not federation.files[0].with_suffix(".db").exists()


def test_a_round_that_ends_before_the_counts_leave_costs_a_site_nothing(
    federation: FakeFederation,
) -> None:
    grid = with_roster(federation, **NOBODY)
    grid.delay = lambda node, step: math.inf if node > 3 and step is Step.SHARE else 0.0
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    assert all(site_spent(file) == 0 for file in federation.files)


def test_kept_seats_hold_no_identity(federation: FakeFederation) -> None:
    grid = with_roster(federation)
    grid.delay = lambda _, step: math.inf if step is Step.INPUT else 0.0
    with pytest.raises(ReleaseRefused):
        federation.run(grid)
    for number, file in enumerate(federation.files, start=1):
        kept = grid.contexts[number].state.config_records[SESSION]["session"]
        secret = SigningKey.load(file.with_suffix(".pem")).private_bytes()
        assert isinstance(kept, bytes)
        assert secret not in kept
        assert secret.hex().encode() not in kept


# Refusals


def test_a_refusal_of_a_known_site_is_signed_and_counts(federation: FakeFederation) -> None:
    grid = with_roster(federation)
    grid.limit(7, largest_epsilon=0.5)
    release, lines = federation.run(grid)
    assert "advertise: 7 of 8 answered, 1 refused, 0 lost" in lines[2]
    assert release.cohorts[0].included == 7


@pytest.mark.parametrize("signed", [False, True])
def test_nobody_refuses_in_a_known_sites_name(federation: FakeFederation, signed: bool) -> None:
    """Anybody can seal to the aggregator; a refusal that the site did not sign is not its own."""
    grid = with_roster(federation)

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id != 7 or asked.metadata.message_type != "query.advertise":
            return [answer]
        invitation = Invitation.from_bytes(unpack(asked).message)
        aggregator, address = invitation.signed.plan.aggregator, invitation.address(Step.ADVERTISE)
        identity = SigningKey.generate() if signed else None
        forged = seal_refusal("it is tired", aggregator, address, identity)
        return [Message(pack(Envelope(invitation.round_id, forged)), reply_to=asked)]

    grid.alter = alter
    _, lines = federation.run(grid)
    assert "advertise: 7 of 8 answered, 0 refused, 1 lost" in lines[2]
    assert not Home(federation.home).refusals.exists()


# A site that its people have to say yes for


def one_waits(federation: FakeFederation) -> FakeGrid:
    """The third of eight sites waits for a person."""
    grid = with_roster(federation)
    config = grid.contexts[3].node_config
    text = Path(str(config["policy"])).read_text()
    own = federation.home.parent / "careful.toml"
    own.write_text(text.replace('"always"', '"every round"'))
    config["policy"] = str(own)
    return grid


def test_who_is_not_counted_is_told_with_a_reason_of_the_public_list(
    federation: FakeFederation,
) -> None:
    release, lines = federation.run(one_waits(federation))
    assert [cohort.included for cohort in release.cohorts] == [7]
    (line,) = [line for line in lines if "not counted: " in line]
    assert line.endswith(" (so the relay says: waits for a person at the site to say yes)")
    (path,) = Home(federation.home).refusals.iterdir()
    ((who, why),) = json.loads(path.read_text()).items()
    assert who.startswith("site")  # by its name
    assert why.startswith("so the relay says: ")


def test_all_or_nothing_costs_nothing_if_one_site_refuses(federation: FakeFederation) -> None:
    grid = one_waits(federation)
    with pytest.raises(DeploymentError, match=r"1 site takes no part.*Nothing was charged.*again"):
        federation.run(grid, everybody=True)
    assert asked_of(grid, "input") == []  # no counts have left
    assert spent(federation) == 0
    release, _ = federation.run(with_roster(federation), everybody=True)  # all are there
    assert [cohort.included for cohort in release.cohorts] == [8]


def test_all_or_nothing_is_refused_before_anybody_is_asked_if_a_site_is_away(
    federation: FakeFederation,
) -> None:
    grid = with_roster(federation)
    del grid.contexts[3]
    with pytest.raises(DeploymentError, match="1 site takes no part"):
        federation.run(grid, everybody=True, clients=7)
    assert asked_of(grid, "advertise") == []
    assert spent(federation) == 0


@pytest.mark.parametrize("lost", [Step.ECHO, Step.REVEAL])
def test_all_or_nothing_costs_nothing_if_a_whole_cohort_is_lost_after_its_counts_left(
    federation: FakeFederation, lost: Step
) -> None:
    grid = with_roster(federation, cohort=4)
    steps = list(Step)

    def delay(node: int, step: Step) -> float:
        if steps.index(step) < steps.index(lost):
            return 0.0
        asked = {m.metadata.dst_node_id: unpack(m).message for m in asked_of(grid, "advertise")}
        return math.inf if Invitation.from_bytes(asked[node]).cohort == 1 else 0.0

    grid.delay = delay
    with pytest.raises(
        ReleaseRefused, match=r"4 clients were lost.*records stay counted"
    ) as raised:
        federation.run(grid, everybody=True)
    assert "own ledger" not in str(raised.value)
    assert spent(federation) == 0
    assert not Home(federation.home).releases.exists()
    assert (asked_of(grid, "reveal") == []) is (lost is Step.ECHO)


def test_all_or_nothing_says_what_sites_have_paid_without_a_trusted_aggregator(
    federation: FakeFederation,
) -> None:
    grid = with_roster(federation, **NOBODY)
    grid.delay = lambda node, step: math.inf if node == 3 and step is Step.INPUT else 0.0
    with pytest.raises(DeploymentError, match=r"Nothing was released.*charged its own ledger"):
        federation.run(grid, everybody=True)
    assert spent(federation) == 0
    assert sum(site_spent(file) > 0 for file in federation.files) == 7


def test_all_or_nothing_waits_for_a_slow_site(federation: FakeFederation) -> None:
    grid = with_roster(federation)
    grid.delay = lambda node, step: 40.0 if node == 3 and step is Step.INPUT else 0.0
    patience: dict[str, Any] = {"step-timeout": 120.0, "grace": 30.0}
    release, _ = federation.run(grid, everybody=True, **patience)
    assert [cohort.included for cohort in release.cohorts] == [8]


@pytest.mark.parametrize("damage", ["removed", "of another encoding"])
def test_a_roster_that_is_damaged_in_a_round_costs_no_release(
    federation: FakeFederation, damage: str
) -> None:
    """A refusal is written with the names that were read before anybody was asked."""
    grid = one_waits(federation)
    roster = Home(federation.home).roster

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.message_type == "query.reveal":
            roster.unlink(missing_ok=True)
            if damage != "removed":
                roster.write_bytes(b"# K\xf6ln\n")
        return [answer]

    grid.alter = alter
    release, lines = federation.run(grid)
    assert [cohort.included for cohort in release.cohorts] == [7]
    assert any("released, verified" in line for line in lines)
    (path,) = Home(federation.home).refusals.iterdir()
    assert next(iter(json.loads(path.read_text()))).startswith("site")


def test_a_relay_that_refuses_in_a_sites_name_is_not_taken_for_the_site(
    federation: FakeFederation,
) -> None:
    grid = with_roster(federation)

    def alter(asked: Message, answer: Message) -> list[Message]:
        if asked.metadata.dst_node_id != 3 or asked.metadata.message_type != "query.advertise":
            return [answer]
        forged = Envelope(unpack(asked).round_id, refusal="a person here said no")
        return [Message(pack(forged), reply_to=asked)]

    grid.alter = alter
    _, lines = federation.run(grid)
    (line,) = [line for line in lines if "not counted: " in line]
    assert line.endswith(" (so the relay says: a person at the site said no)")
    (path,) = Home(federation.home).refusals.iterdir()
    assert list(json.loads(path.read_text()).values()) == [
        "so the relay says: a person here said no"
    ]
