"""Releases of any kind: what is written comes back, says one thing, and is shown in words."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError, verify
from fedprikl.documents import canonical
from fedprikl.estimation import CountNoise, JudgedStatistic, NoisyCounts, Verdict
from fedprikl.privacy import Head, PrivacyStatement
from fedprikl.protocol import Answer, ColumnAnswer, Outcome, Release, SigningKey
from fedprikl.protocol.release import CellAnswer
from fedprikl.reporting import release_page
from fedprikl.reporting.facts import answer_words, drift_words, release_headline
from tests.protocol.worlds import World

pytestmark = pytest.mark.slow

KEY = SigningKey.generate()
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63) + 1, 2**63 - 1)
WHOLE = st.integers(0, 2**63 - 1)
TEXTS = st.text(max_size=8)
NAMES = TEXTS.filter(str.isprintable)  # people read these in a terminal
AMOUNTS = st.floats(0, 1e300)
ODD = [
    *(None, True, "1", "", -1, 0, 0.0, 2**63, 10**400, 1e308, -1e308, 5e-324, -0.0, [], {}),
    *([1], [None, 1], ["x", "y"], {"kind": "laplace"}, "aggregator", "none", "\ud800"),
]


def some(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(of, max_size=3).map(tuple)


@st.composite
def noisy_counts(draw: st.DrawFn) -> NoisyCounts:
    points, batches = draw(st.integers(0, 3)), draw(st.integers(1, 3))

    def each(size: int, of: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(of, min_size=size, max_size=size).map(tuple))

    held = st.floats(-(2.0**62), 2.0**62) | st.integers(-(2**62), 2**62)
    law = st.builds(CountNoise, sd=st.floats(0.1, 1e9), scale=st.none() | st.floats(0.1, 1e9))
    return NoisyCounts(
        batch=each(points, WHOLE),
        cells=each(points, WHOLE),
        counts=each(points, held),
        out_of_domain=each(batches, held),
        records=each(batches, st.integers(1, 2**60)),
        noise=each(batches, law),
    )


ANSWERS = st.builds(
    Answer,
    divergence=TEXTS,
    value=NUMBERS,
    interval=st.none() | st.tuples(NUMBERS, NUMBERS).map(lambda pair: tuple(sorted(pair))),
    no_drift=st.none() | NUMBERS,
    target=TEXTS,
    unit=TEXTS,
    mechanism=TEXTS,
)
STATISTICS = st.builds(JudgedStatistic, name=TEXTS, value=NUMBERS, threshold=NUMBERS, unit=TEXTS)
INTERVALS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: tuple(sorted(pair)))
CELLS = st.builds(
    CellAnswer,
    label=TEXTS,
    reference=NUMBERS,
    share=NUMBERS,
    interval=INTERVALS,
    shifted=st.sampled_from(["up", "down", ""]),
)
VERDICTS = st.builds(
    Verdict,
    statistics=st.lists(
        STATISTICS,
        min_size=1,
        max_size=3,
        unique_by=lambda statistic: statistic.name,
    ).map(tuple),
    false_alarm=NUMBERS,
    design_effect=st.none() | NUMBERS,
    can_tell=st.booleans(),
    findable=st.none() | NUMBERS,
)
COLUMNS = st.builds(
    ColumnAnswer,
    columns=st.lists(TEXTS, min_size=1, max_size=2).map(tuple),
    verdict=st.none() | VERDICTS,
    answers=some(ANSWERS),
    cells=some(CELLS),
    counts=noisy_counts(),
)
STATEMENTS = st.builds(
    PrivacyStatement,
    epsilon=AMOUNTS | st.just(float("inf")),
    delta=st.floats(0, 1, exclude_max=True),
    claimed_epsilon=st.none() | AMOUNTS,
    mechanism=TEXTS,
    released=TEXTS,
    trust=TEXTS,
    sensitivity=st.none() | NUMBERS,
    insecure=st.booleans(),
)


OUTCOMES = st.tuples(WHOLE, WHOLE, WHOLE, TEXTS).map(
    lambda drawn: Outcome(drawn[0], max(drawn[1:3]), min(drawn[1:3]), drawn[3])
)


@st.composite
def releases(draw: st.DrawFn) -> Release:
    trust = draw(st.sampled_from(["aggregator", "none"]))
    noisy = draw(noisy_counts() if trust == "none" else st.none() | noisy_counts())
    return draw(
        st.builds(
            Release,
            round_id=TEXTS,
            request=TEXTS,
            population=NAMES,
            trust=st.just(trust),
            plan=TEXTS,
            reference=TEXTS,
            answers=st.lists(
                ANSWERS, min_size=1, max_size=3, unique_by=lambda answer: answer.divergence
            ).map(tuple),
            columns=st.lists(COLUMNS, max_size=2, unique_by=lambda column: column.columns).map(
                tuple
            ),
            verdict=st.none() | VERDICTS,
            privacy=STATEMENTS,
            cohorts=some(OUTCOMES),
            payload=WHOLE,
            records=WHOLE if noisy is None else st.just(sum(noisy.records)),
            noisy_counts=st.just(noisy),
            ledger=st.none() | st.builds(Head, WHOLE, TEXTS),
            software=NAMES,
            released_at=NAMES,
        )
    )


@given(releases())
def test_any_release_comes_back(release: Release) -> None:
    signed = release.sign(KEY)
    again = Release.from_bytes(signed.to_bytes())
    assert again == signed
    assert again.to_bytes() == signed.to_bytes()
    assert again.fingerprint == signed.fingerprint
    assert again.is_signed_by(KEY.public)
    assert all(answer_words(answer, again) for answer in again.answers)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    if path:
        yield path
    places = (
        value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    )
    for place in places:
        yield from paths(value[place], (*path, place))


@given(releases(), st.data())
def test_a_changed_document_is_refused_or_read_as_it_is(release: Release, data: Any) -> None:
    """Whatever is read writes the very document again: nothing is passed over or put right."""
    signed = release.sign(KEY)
    document = copy.deepcopy(signed.to_dict())
    path = data.draw(st.sampled_from(list(paths(document))))
    place = document
    for name in path[:-1]:
        place = place[name]
    match data.draw(st.sampled_from(["replace", "remove", "add"])):
        case "replace":
            place[path[-1]] = data.draw(st.sampled_from(ODD) | NUMBERS | TEXTS)
        case "remove":
            del place[path[-1]]
        case "add":
            place.update(more=1) if isinstance(place, dict) else place.append(1)
    try:
        found = Release.from_bytes(json.dumps(document))
    except InvalidInputError:
        return
    assert found.to_bytes() == canonical(document)
    assert found.is_intact == (found.to_bytes() == signed.to_bytes())


WORLD = World.make(clients=9)
PLAN = WORLD.plan(cohort=9, threshold=0.5)
GENUINE = WORLD.run(PLAN).release


@pytest.mark.parametrize(
    ("part", "field", "words"),
    [
        ("verdict", "statement", "No drift found: all is well."),
        ("verdict", "drifted", None),  # the opposite
        ("privacy", "statement", "epsilon 0: nothing can be learned."),
        ("privacy", "holds", None),
    ],
)
def test_a_signed_release_says_one_thing(part: str, field: str, words: str | None) -> None:
    """Even the aggregator cannot sign words that its own numbers do not bear out."""
    content = copy.deepcopy(GENUINE.to_dict()["release"])
    content[part][field] = not content[part][field] if words is None else words
    signature = KEY.sign(canonical(content))
    document = {"release": content, "signer": KEY.public, "signature": signature}
    with pytest.raises(InvalidInputError, match=rf"The field '{part}' .* do not follow"):
        Release.from_bytes(json.dumps(document))


@pytest.mark.parametrize(
    ("field", "value"), [("unit", "client"), ("unit", "all records"), ("per_client", 3)]
)
def test_a_release_cannot_claim_to_protect_others_than_it_does(field: str, value: object) -> None:
    content = copy.deepcopy(GENUINE.to_dict()["release"])
    content["privacy"][field] = value
    signature = KEY.sign(canonical(content))
    document = {"release": content, "signer": KEY.public, "signature": signature}
    with pytest.raises(InvalidInputError):
        Release.from_bytes(json.dumps(document))


def test_parts_that_contradict_each_other_make_no_release() -> None:
    with pytest.raises(InvalidInputError, match="at least one question"):
        replace(GENUINE, answers=())
    with pytest.raises(InvalidInputError, match="noisy counts if no party is trusted"):
        replace(GENUINE, trust="none")
    noisy = WORLD.run(WORLD.plan(cohort=9, trust="none")).release
    with pytest.raises(InvalidInputError, match="of other records"):
        replace(noisy, records=noisy.records + 1)
    with pytest.raises(InvalidInputError, match="every question once"):
        replace(GENUINE, answers=GENUINE.answers * 2)
    assert noisy.noisy_counts is not None
    with pytest.raises(InvalidInputError, match="must fit the points and batches"):
        replace(noisy.noisy_counts, out_of_domain=())


@pytest.mark.parametrize("part", ["signer", "signature"])
@pytest.mark.parametrize("change", [str.upper, lambda text: f"{text} ", lambda text: f"{text}\n"])
def test_a_key_and_a_signature_are_written_in_one_way(
    part: str, change: Callable[[str], str]
) -> None:
    signed = GENUINE.sign(KEY)
    assert signed.is_intact
    changes: dict[str, Any] = {part: change(getattr(signed, part))}
    assert not replace(signed, **changes).is_intact


def test_no_signer_stands_beside_those_that_signed() -> None:
    signed, other = GENUINE.sign(KEY), SigningKey.generate()
    assert verify(signed.countersign(other), key=KEY.public)
    for signature in ("", signed.signature, "a" * 128):
        beside = replace(
            signed,
            signer=f"{signed.signer} {other.public}",
            signature=f"{signed.signature} {signature}".strip(),
        )
        with pytest.raises(InvalidInputError, match="NOT genuine"):
            verify(beside, key=KEY.public)


def test_a_release_does_not_contradict_itself() -> None:
    (answer,), (cohort, *_) = GENUINE.answers, GENUINE.cohorts
    impossible: list[dict[str, Any]] = [
        {"answers": (replace(answer, interval=(9.0, -9.0)),)},
        {"cohorts": (replace(cohort, included=cohort.clients + 1),)},
        {"privacy": replace(GENUINE.privacy, epsilon=-2.0)},
        {"privacy": replace(GENUINE.privacy, delta=-5.0)},
        {"released_at": "2030-01-31\nsigner: abab (trusted)"},
        {"population": "phones\x1b[2J"},
    ]
    for changes in impossible:
        with pytest.raises(InvalidInputError):
            replace(GENUINE, **changes)


def test_a_release_is_about_its_plan_in_every_field() -> None:
    result = WORLD.run(PLAN)
    assert result.release.is_about(PLAN)
    for changes in (
        {"population": "others"},
        {"reference": 64 * "0"},
        {"plan": 64 * "0"},
        {"privacy": replace(result.release.privacy, claimed_epsilon=0.001)},
        {"answers": (replace(result.release.answers[0], divergence="tv"),)},
        {"answers": (replace(result.release.answers[0], target="D(Pi || P)"),)},
        {"answers": (*result.release.answers, replace(result.release.answers[0], divergence="x"))},
        {"verdict": WORLD.run(WORLD.plan(cohort=9, trust="none")).release.verdict},
    ):
        assert not replace(result.release, **changes).is_about(PLAN)


def test_what_nobody_could_read_is_not_signed() -> None:
    for value in (float("nan"), float("inf"), 10**400):
        (answer,) = GENUINE.answers
        with pytest.raises(InvalidInputError, match="field 'value' must be a finite number"):
            replace(GENUINE, answers=(replace(answer, value=value),)).sign(KEY)


def test_a_release_with_two_answers_reads_and_shows_well() -> None:
    (first,) = GENUINE.answers
    first = replace(first, value=0.5, interval=(0.25, 0.75), no_drift=0.125)
    second = Answer(
        divergence="tv",
        value=0.125,
        interval=None,
        no_drift=0.25,
        target="TV(Pi, P)",
        unit="",
        mechanism="Gaussian noise",
    )
    signed = replace(GENUINE, answers=(first, second), records=3000).sign(KEY)
    assert Release.from_bytes(signed.to_bytes()) == signed
    assert (signed.value, signed.interval) == (0.5, (0.25, 0.75))
    assert signed.verdict is not None
    assert tuple(answer_words(answer, signed) for answer in signed.answers) == (
        "The records of testers differ from the reference by D(Pi || 0.01 Pi + 0.99 P) = 0.500 "
        "nats, of which about 0.125 is what 3,000 records give without any drift "
        "(95% interval: 0.250 to 0.750).",  # the verdict's own number is another one
        "The records of testers differ from the reference by TV(Pi, P) = 0.125; "
        "3,000 records give about 0.250 without any drift.",
    )
    page = release_page(signed, PLAN, {})
    assert page.count("<svg") == 2
    assert page.count(">your own threshold, from the plan</text>") == 1
    drift, headline = drift_words(signed), release_headline(signed)
    assert page.index(drift) < page.index("= 0.500 nats") < page.index("= 0.125")
    assert page.index(headline) < page.index("<svg") < page.index(drift)
