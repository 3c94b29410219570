"""`fedprikl server`: the commands of docs/servers.md, for three servers on one machine."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from fedprikl.cli import server_command
from fedprikl.cli.app import app
from fedprikl.deployment.servers.collector import Collector
from fedprikl.deployment.servers.home import ServerHome
from fedprikl.errors import InvalidInputError
from fedprikl.front import verify
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    Release,
    Series,
    Servers,
    SignedPlan,
    SigningKey,
)
from fedprikl.reference import Reference
from tests.deployment.servers.test_links import free_ports
from tests.deployment.servers.world import CELLS, call, reports

runner = CliRunner()


def run(*words: object) -> str:
    result = runner.invoke(app, ["server", *map(str, words)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def fails(*words: object) -> str:
    result = runner.invoke(app, ["server", *map(str, words)])
    assert result.exit_code != 0
    return f"{result.output} {result.exception}"


class Operators:
    """Three folders made by commands, a plan, and an organiser."""

    def __init__(self, folder: Path, **limits: object) -> None:
        made = runner.invoke(app, ["keys", str(folder / "organiser")])
        self.folder, self.organiser = folder, SigningKey.load(folder / "organiser" / "signing.pem")
        assert self.organiser.public in made.output
        self.homes = [folder / f"server{n}" for n in (1, 2, 3)]
        options = [word for name, value in limits.items() for word in (f"--{name}", value)]
        for number, (home, port) in enumerate(zip(self.homes, free_ports(), strict=True), start=1):
            run(
                *("init", home, "--address", f"https://127.0.0.1:{9000 + number}"),
                *("--peer", f"127.0.0.1:{port}", "--organiser", self.organiser.public, *options),
            )
        self.cards = [home / "card.json" for home in self.homes]
        for number, home in enumerate(self.homes, start=1):
            assert f"server {number} of 3" in run("join", home, *self.cards)
        run("cards", folder / "servers.json", *self.cards, "--suite", "x25519", "--lost", "counts")
        reference = Reference.from_counts([10] * CELLS)
        reference.save(folder / "ref.json")
        self.plan = folder / "plan.json"
        plan = Plan(
            population="phones",
            reference=reference.fingerprint,
            trust="servers",
            servers=Servers.load(folder / "servers.json"),
            budget=Budget(epsilon=1.0),
            views=(AskedView(points=CELLS),),
            questions=(Question(release="counts"),),
        )
        self.signed = SignedPlan.sign(plan, self.organiser)
        self.plan.write_text(json.dumps(self.signed.to_dict()))


@pytest.mark.slow
def test_from_keys_to_a_signed_release(tmp_path: Path) -> None:
    made = Operators(tmp_path)
    for home in made.homes:
        run("accept", home, made.plan, "--budget", 1)

    async def send() -> None:
        sent = [reports(made.signed, counts=[4] * CELLS) for _ in range(30)]
        for number, folder in enumerate(made.homes):
            home = ServerHome(folder)
            collector = Collector(home.tasks, home.intake("a"), ends=home.certificate_ends)
            for message in sent:
                assert (await call(collector, message[number]))[0] == 200

    asyncio.run(send())
    assert f"plan {made.signed.plan.fingerprint[:16]} about phones: 30 reports" in run(
        "status", made.homes[0]
    )
    words = [sys.executable, "-m", "fedprikl", "server", "answer"]
    started = [
        subprocess.Popen(
            [*words, str(home), str(made.plan), "--wait", "60", "--json"], stdout=subprocess.PIPE
        )
        for home in made.homes
    ]
    printed = [json.loads(each.communicate()[0]) for each in started]
    assert printed[0] == printed[1] == printed[2]
    (path,) = (made.homes[1] / "releases").glob("*.json")
    release = verify(path, plan=made.plan)
    assert (len(release.signers), release.cohorts[0].included) == (3, 30)
    fetched = ServerHome(made.homes[2]).release(made.signed.plan.fingerprint, 0)
    assert Release.from_bytes(fetched or "") == release
    assert "this is that release" in run("answer", made.homes[0], made.plan)
    for home in made.homes:
        page = (home / "releases" / path.with_suffix(".html").name).read_text()
        assert release.round_id in page
    told = json.loads(run("status", made.homes[0], "--json"))
    assert (told["server"], told["reports"][0]["held"], len(told["releases"])) == (1, 0, 1)
    assert told["epsilon_left"]["phones"] < 0.01
    assert "answered" in run("status", made.homes[0])


def test_plans_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    made = Operators(tmp_path, **{"largest-epsilon": 0.5})
    refused = fails("accept", made.homes[0], made.plan)
    assert "This server takes no part: epsilon 1 exceeds the limit 0.5 (largest-epsil" in refused
    other = SignedPlan.sign(made.signed.plan, SigningKey.generate())
    made.plan.write_text(json.dumps(other.to_dict()))
    refused = fails("accept", made.homes[0], made.plan)
    assert "not signed by the organiser" in refused
    assert "limits.json" in refused  # where its key can be corrected
    assert "has not accepted the plan" in fails("answer", made.homes[0], made.plan)


def test_another_order_of_servers_is_refused_once_a_plan_was_accepted(tmp_path: Path) -> None:
    made = Operators(tmp_path)
    home, (one, two, three) = made.homes[0], made.cards
    assert "server 2 of 3" in run("join", home, two, one, three)  # no plan names an order yet
    run("join", home, one, two, three)
    run("accept", home, made.plan, "--budget", 1)
    refused = fails("join", home, two, one, three)
    assert "joined as server 1 of 3 and has accepted plans that name this order" in refused
    assert made.signed.plan.fingerprint in run("status", home, "--json")
    assert "server 1 of 3" in run("join", home, one, two, three)


def test_a_malformed_key_of_the_organiser_is_named(tmp_path: Path) -> None:
    line = ("init", tmp_path / "s", "--address", "https://a.example", "--peer", "a.example:9444")
    said = " ".join(fails(*line, "--organiser", "abc").split())
    assert "--organiser is malformed" in said
    assert "--signer" not in said
    assert not (tmp_path / "s").exists()


def budgets(home: Path) -> dict[str, float]:
    with Ledger.open(ServerHome(home).ledger) as ledger:
        return {account.population: account.epsilon for account in ledger.accounts()}


def test_plan_that_the_budget_cannot_pay_is_refused(tmp_path: Path) -> None:
    made = Operators(tmp_path)
    home = made.homes[0]
    told = " ".join(fails("accept", home, made.plan, "--budget", 0.5).split())
    assert "0.5 is left" in told
    assert "The plan was not accepted" in told
    assert not list((home / "plans").iterdir())
    assert budgets(home) == {}  # what is refused changes nothing
    assert "takes reports" in run("accept", home, made.plan, "--budget", 1)
    assert "The plan was not accepted" in " ".join(
        fails("accept", home, made.plan, "--budget", 0.5).split()
    )
    assert budgets(home) == {"phones": 1.0}
    without = run("accept", made.homes[1], made.plan)
    assert "has no budget at this server yet" in " ".join(without.split())
    assert f"--ledger {made.homes[1] / 'ledger.db'} --population" in " ".join(without.split())
    assert "takes reports" in without


def test_plan_is_refused_if_the_answer_of_two_servers_could_not_be_paid(tmp_path: Path) -> None:
    """Normal noise of two shares costs a little more than that of three: 0.99999 and 1."""
    made = Operators(tmp_path)
    counts = Question(release="counts", noise="gaussian")
    plan = replace(made.signed.plan, questions=(counts,), budget=Budget(epsilon=1.0, delta=1e-6))
    made.plan.write_text(json.dumps(SignedPlan.sign(plan, made.organiser).to_dict()))
    told = " ".join(fails("accept", made.homes[0], made.plan, "--budget", 0.999995).split())
    assert "The plan was not accepted" in told
    assert "takes reports" in run("accept", made.homes[0], made.plan, "--budget", 1)


def test_plan_of_some_releases_says_that_the_last_will_be_refused(tmp_path: Path) -> None:
    made = Operators(tmp_path)
    budget = Budget(epsilon=1.0, releases=3, total_epsilon=3.0, total_delta=3e-6)
    plan = replace(made.signed.plan, budget=budget)
    made.plan.write_text(json.dumps(SignedPlan.sign(plan, made.organiser).to_dict()))
    told = " ".join(run("accept", made.homes[0], made.plan, "--budget", 2).split())
    assert "the last ones will be refused" in told
    assert "the last ones" not in run("accept", made.homes[0], made.plan, "--budget", 3)


def test_cards_must_be_those_of_the_three(tmp_path: Path) -> None:
    made = Operators(tmp_path)
    first, second, third = made.cards
    assert "each with a key of its own" in fails("join", made.homes[0], first, second, second)
    assert "this one is one of them" in fails("join", made.homes[0], second, third, second)
    card = json.loads(first.read_text())
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(card | {"signing": 64 * "0"}))
    assert "does not have the key that signs" in fails("join", made.homes[1], forged, second, third)
    swapped = tmp_path / "swapped.json"
    run("cards", swapped, second, first, third)
    assert "already" in fails(
        *("init", made.homes[0], "--address", "https://a", "--peer", "a:1"),
        *("--organiser", made.organiser.public),
    )


def test_plan_of_another_order_is_refused(tmp_path: Path) -> None:
    made = Operators(tmp_path)
    run("cards", tmp_path / "servers.json", *reversed(made.cards), "--suite", "x25519")
    plan = replace(made.signed.plan, servers=Servers.load(tmp_path / "servers.json"))
    made.plan.write_text(json.dumps(SignedPlan.sign(plan, made.organiser).to_dict()))
    assert "other servers than these three, or another order" in fails(
        "accept", made.homes[0], made.plan
    )


@pytest.mark.parametrize("address", ["http://one.example", "https://", "one", "https://[::1"])
def test_address_is_one_of_https(tmp_path: Path, address: str) -> None:
    words = ("--peer", "a:1", "--organiser", SigningKey.generate().public)
    fails("init", tmp_path / "s", "--address", address, *words)
    assert not (tmp_path / "s" / "card.json").exists()


@pytest.mark.parametrize("address", ["https://[::1]", "https://[::1]:8443/"])
def test_an_address_may_be_of_ipv6(tmp_path: Path, address: str) -> None:
    words = ("--peer", "[::1]:9444", "--organiser", SigningKey.generate().public)
    run("init", tmp_path / "s", "--address", address, *words)
    made = x509.load_pem_x509_certificate((tmp_path / "s" / "server.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["::1"]


def test_a_malformed_key_of_an_organiser_is_called_so(tmp_path: Path) -> None:
    words = ("--address", "https://a", "--peer", "a:1", "--organiser", "abc")
    assert "--organiser is malformed" in fails("init", tmp_path / "s", *words)


def test_folder_of_no_server(tmp_path: Path) -> None:
    assert "does not know the other two" in fails("status", tmp_path)


def test_an_answer_in_a_series_is_about_the_last_period_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a report is. An answer to another one would close it for ever."""
    made = Operators(tmp_path)
    weeks = Series(every="week", first="2026-01-05", periods=9, time_column="day")
    signed = SignedPlan.sign(replace(made.signed.plan, when=weeks), made.organiser)
    made.plan.write_text(json.dumps(signed.to_dict()))
    home = made.homes[0]
    assert "fedprikl server run" in run("accept", home, made.plan, "--budget", 1)
    message = reports(signed, counts=[4] * CELLS, period=1)[0]
    collector = Collector(
        ServerHome(home).tasks, ServerHome(home).intake("a"), ends=ServerHome(home).certificate_ends
    )
    assert asyncio.run(call(collector, message))[0] == 200
    words = "about phones, period 1 (2026-01-12 up to 2026-01-19): 1 report"
    assert words in run("status", home)
    asked: list[int] = []

    def take_part(_: object, __: object, period: int, **___: object) -> None:
        asked.append(period)
        raise InvalidInputError("far enough")

    monkeypatch.setattr(server_command, "take_part", take_part)
    monkeypatch.setattr(server_command, "now", lambda: "2026-01-28T10:00:00+00:00")
    assert "far enough" in fails("answer", home, made.plan)
    assert "far enough" in fails("answer", home, made.plan, "--period", 0)
    assert asked == [2, 0]
    monkeypatch.setattr(server_command, "now", lambda: "2026-01-07T10:00:00+00:00")
    words = fails("answer", home, made.plan)
    assert "No period is over yet: the first ends at 2026-01-12T00:00Z." in words
    assert asked == [2, 0]
