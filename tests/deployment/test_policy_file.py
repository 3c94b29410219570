"""policy.toml: what it says holds, and what it does not understand is refused."""

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import write_plan, write_policy

from fedprikl.deployment.flower.client import unpack
from fedprikl.deployment.policy import SitePolicy, load_policy, policy_text
from fedprikl.errors import DeploymentError, InvalidInputError, PolicyRefusal, ReleaseRefused
from fedprikl.protocol import Policy, SigningKey
from tests.deployment.fake_grid import FakeFederation

KEY = "ab" * 32
WHO = f'\n[organisers]\nnorth = "{KEY}"\n'


def loaded(tmp_path: Path, text: str) -> SitePolicy:
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return load_policy(path)


def test_never_ask_is_the_clearer_word_for_always(tmp_path: Path) -> None:
    for word in ("always", "never ask"):
        text = policy_text({"north": 64 * "a"}, require_roster=False)
        path = tmp_path / "policy.toml"
        path.write_text(text.replace('approve = "never ask"', f'approve = "{word}"'))
        assert load_policy(path).approve == "always"


def test_what_join_writes_is_a_policy_and_says_what_the_defaults_are(tmp_path: Path) -> None:
    """Every line that is commented out says the default, so that to uncomment changes nothing."""
    text = policy_text({"north": KEY}, require_roster=True)
    found = loaded(tmp_path, text)
    assert found.organisers == {"north": KEY}
    assert (found.approve, found.epsilon_per_year) == ("always", 2.0)
    assert found.limits.require_roster
    free = ("populations", "views", "columns", "hours", "zone")
    lines = [line.removeprefix("# ") for line in text.split("\n")]
    defaults = [line for line in lines if " = " in line and not line.startswith((*free, '"'))]
    again = loaded(tmp_path, "\n".join(defaults) + WHO)
    assert again == found
    assert len(defaults) == 13


def test_a_policy_of_few_words_asks_a_person_and_has_the_usual_limits(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHO)
    usual = Policy(organisers=frozenset({KEY}), longest_validity=timedelta(days=400))
    assert found.limits == usual
    assert (found.approve, found.epsilon_per_year, found.hours) == ("new plans", None, None)


def test_a_policy_holds_all_that_it_says(tmp_path: Path) -> None:
    text = """
    approve = "every round"
    populations = ["a", "b"]
    views = ["columns"]
    columns = ["age"]
    largest-epsilon = 1
    largest-epsilon-per-year = 3
    hours = "22:00-06:30"
    zone = "Europe/Amsterdam"
    whole-clients-only = true
    most-counts = 4
    [organisers]
    "the north" = "%s"
    south = "%s"
    """
    found = loaded(tmp_path, text % (KEY, 64 * "c"))
    assert found.limits.organisers == {KEY, 64 * "c"}
    assert (found.limits.populations, found.limits.columns) == (
        frozenset({"a", "b"}),
        frozenset({"age"}),
    )
    assert (found.limits.units, found.limits.most_counts) == (frozenset({"client"}), 4)
    assert (found.limits.largest_epsilon, found.epsilon_per_year) == (1, 3)
    assert found.hours == (time(22), time(6, 30))
    assert found.name_of(64 * "c") == "south"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("largest_epsilon = 1.0", "Did you mean largest-epsilon?"),
        ("Largest-Epsilon = 1.0", "Did you mean largest-epsilon?"),
        ("aprove = 'always'", "Did you mean approve?"),
        ("organisors = 1", "Did you mean organisers?"),
        ("x = 1", "There are: approve"),
        (
            "approve = 'sometimes'",
            "`approve` must be one of 'never ask', 'new plans', 'every round'",
        ),
        ("approve = true", "`approve` must be one of"),
        ("largest-epsilon = '1'", "`largest-epsilon` must be a finite number"),
        ("largest-epsilon = true", "`largest-epsilon` must be a finite number"),
        ("largest-epsilon = nan", "`largest-epsilon` must be a finite number"),
        ("largest-epsilon = inf", "`largest-epsilon` must be a finite number"),
        ("largest-epsilon = 0", "Give a number above 0"),
        ("largest-epsilon-per-year = 0", "must be above 0"),
        ("largest-delta = 1", "`largest-delta` must be above 0 and under 1"),
        ("largest-delta-per-year = 1", "must be above 0 and under 1"),
        ("most-counts = 1.5", "`most-counts` must be a whole number"),
        ("most-counts = -1", "`most-counts` must be a whole number"),
        ("smallest-cohort = 0", "`smallest-cohort` must be at least 1"),
        ("require-roster = 1", "`require-roster` must be true or false"),
        ("require-roster = 'true'", "`require-roster` must be true or false, without quotes."),
        ("require-roster = True", "`require-roster`: write true or false"),
        ("largest-epsilon = '1'", "`largest-epsilon` must be a finite number, without quotes."),
        ("populations = 'sites'", '`populations` must be a list, also of one: ["sites"].'),
        ("columns = 'first_seen'", 'a list, also of one: ["first_seen"].'),
        ("columns = 3", "`columns` must be a list."),
        ("populations = []", "`populations` is empty"),
        ("populations = ['']", "`populations` is empty"),
        ("columns = ['age', 3]", "`columns` must be a text"),
        ("views = ['whole', 'rows']", "`views` must be one of 'whole', 'columns', 'pairs'"),
        ("hours = '8-18'", "`hours` must be like"),
        ("hours = '08:00-08:00'", "`hours` must be like"),
        ("zone = 'Nowhere/City'", "no time zone"),
        ("longest-validity-days = 0", "above 0"),
        ("least-corruption = 0.5", "under one half"),
        ("largest-epsilon = 1\nlargest-epsilon = 2", "no TOML file"),
        ("[limits]\nlargest-epsilon = 0.1", "There is no setting 'limits' of a policy"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=r"The policy .*policy.toml") as refused:
        loaded(tmp_path, line + WHO)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "organisers",
    [
        *("", "organisers = 3", "[organisers]", "[organisers]\na = 3", "[organisers]\na = 'ab'"),
        *(f"[organisers]\na = '{KEY.upper()}'", f"organisers = ['{KEY}']"),
    ],
)
def test_somebody_has_to_be_named_who_may_ask(tmp_path: Path, organisers: str) -> None:
    """An empty list of organisers would accept any."""
    with pytest.raises(InvalidInputError, match=r"organiser"):
        loaded(tmp_path, organisers)


def test_a_misspelt_table_of_organisers_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'organizers'.*Did you mean organisers\?"):
        loaded(tmp_path, WHO.replace("organisers", "organizers"))


def test_a_policy_that_is_gone_stops_the_site(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match="a site answers nobody: make it with"):
        load_policy(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("hours", "at", "inside"),
    [
        ("08:00-18:00", "2027-01-04T07:30:00+00:00", True),  # 08:30 in Amsterdam
        ("08:00-18:00", "2027-01-04T06:59:00+00:00", False),
        ("08:00-18:00", "2027-01-04T17:00:00+00:00", False),
        ("22:00-06:00", "2027-01-04T23:00:00+00:00", True),
        ("22:00-06:00", "2027-01-04T21:00:00+00:00", True),
        ("22:00-06:00", "2027-01-04T12:00:00+00:00", False),
    ],
)
def test_hours_are_those_of_the_sites_own_clock(
    tmp_path: Path, hours: str, at: str, inside: bool
) -> None:
    found = loaded(tmp_path, f'hours = "{hours}"\nzone = "Europe/Amsterdam"' + WHO)
    if inside:
        found.check_hours(at)
        return
    with pytest.raises(PolicyRefusal, match=r"it answers from \d\d:00 to \d\d:00 \(Europe"):
        found.check_hours(at)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"columns": ["age"]}, "asks about the column 'plan'"),
        ({"views": ["columns"]}, "asks about whole"),
        ({"populations": ["others"]}, "the population 'sites'"),
        ({"largest_epsilon": 0.5}, "epsilon 1 exceeds the limit 0.5 (largest-epsilon)"),
        ({"hours": "00:00-00:01", "zone": "UTC"}, "it answers from 00:00 to 00:01"),
    ],
)
def test_a_round_outside_of_the_policy_is_refused_before_a_record_is_read(
    federation: FakeFederation,
    limits: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedprikl.deployment.site.now", _noon)
    grid = federation.grid(**limits)
    with pytest.raises(ReleaseRefused, match="8 clients took no part") as refused:
        federation.run(grid)
    if "largest_epsilon" in limits:
        assert "[its policy allows less: largest-epsilon]" in str(refused.value)
        assert "let the sites raise this limit" in str(refused.value)
    if words != "the population 'sites'" and "views" not in limits:  # these are not listed
        assert "when more clients can take part" not in str(refused.value)
    told = {unpack(message).refusal for message in grid.carried} - {""}
    assert len(told) == 1
    assert words in told.pop()


def _noon() -> str:
    return datetime.now(UTC).replace(hour=12).isoformat()


@pytest.mark.slow
def test_several_organisers_may_ask(federation: FakeFederation) -> None:
    """The second one has a plan of its own; a third is refused by name."""
    grid = federation.grid(most_counts=2)
    first = SigningKey.load(federation.home / "organiser.pem").public
    second = SigningKey.generate()
    policy = write_policy(federation.home, first, most_counts=2)
    policy.write_text(policy.read_text() + f'second = "{second.public}"\n')
    for context in grid.contexts.values():
        context.node_config["policy"] = str(policy)
    assert federation.run(grid)[0].cohorts[0].included == 8
    (federation.home / "organiser.pem").unlink()
    second.save(federation.home / "organiser.pem")
    write_plan(federation.home, "second.json", serial=1)
    assert federation.run(grid, plan="second.json")[0].cohorts[0].included == 8
    third = SigningKey.generate()
    (federation.home / "organiser.pem").unlink()
    third.save(federation.home / "organiser.pem")
    write_plan(federation.home, "third.json", serial=2)
    with pytest.raises(ReleaseRefused, match=f"not signed by an organiser.*{third.public[:16]}"):
        federation.run(grid, plan="third.json")
