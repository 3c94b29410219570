"""A client's report over HTTPS: sent until it is taken, once for a plan and period."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import fedprikl as fk
from fedprikl.cli.app import app
from fedprikl.deployment import delivery
from fedprikl.deployment.reporter import prepare
from fedprikl.deployment.tls import write_certificates
from fedprikl.errors import DeploymentError, InvalidInputError, PolicyRefusal
from fedprikl.protocol import AskedView, Policy, Question, Series, SignedPlan, WholeClient
from fedprikl.protocol.keys import Roster
from fedprikl.protocol.report import open_report, read_header
from fedprikl.secure_sum.line_shares import restore
from tests.deployment.reporting_world import (
    KEYS,
    ORGANISER,
    REFERENCE,
    Scripted,
    plan_for,
    three_servers,
    write_plan,
)

RECORDS = [0, 0, 1, 2, 2, 2, 7]
COUNTS = [2, 1, 3, 1, 7]  # of the three cells, of all other records, and all records
NOWHERE = tuple(f"https://{name}.example" for name in "abc")
BUSY = (503, {"error": "too many reports at once"}, {"Retry-After": "7"})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def running(certificates: Path) -> Iterator[list[Scripted]]:
    with three_servers(certificates) as servers:
        yield servers


@pytest.fixture
def servers(running: list[Scripted]) -> list[Scripted]:
    for server in running:
        server.replies, server.got = [], []
    return running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client waited, without waiting."""
    found: list[float] = []
    defaults = delivery.deliver.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "sleep", found.append)
    return found


def addresses(servers: list[Scripted]) -> tuple[str, ...]:
    return tuple(server.address for server in servers)


def send(signed: SignedPlan, certificates: Path, home: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"reference": REFERENCE, "home": home, "roots": certificates / "ca.pem"}
    data = options.pop("data", RECORDS)
    return fk.report(signed, data, **(given | options))


def restored(servers: list[Scripted], signed: SignedPlan, suite: str = "hybrid") -> list[int]:
    """What the counts are that the servers got."""
    shares = {}
    for number, server in enumerate(servers, start=1):
        (message,) = set(server.got)
        _, shares[number] = open_report(
            message,
            KEYS[suite][number - 1],
            plan=bytes.fromhex(signed.plan.fingerprint),
            period=0,
            server=number,
            entries=len(COUNTS),
        )
    found: list[int] = restore(shares)[:-1].tolist()
    return found


@pytest.mark.parametrize("suite", ["x25519", "hybrid"])
def test_three_servers_get_shares_of_the_counts(
    suite: str, servers: list[Scripted], certificates: Path, tmp_path: Path
) -> None:
    signed = plan_for(addresses(servers), suite=suite)
    done = send(signed, certificates, tmp_path)
    assert restored(servers, signed, suite) == COUNTS
    assert not done.repeated
    assert done.report_id == read_header(servers[0].got[0]).report_id.hex()
    assert list(done.sizes.values()) == [len(server.got[0]) for server in servers]


def test_a_second_call_sends_nothing_new_and_reads_no_record(
    servers: list[Scripted], certificates: Path, tmp_path: Path
) -> None:
    signed = plan_for(addresses(servers))
    first = send(signed, certificates, tmp_path)
    again = send(signed, certificates, tmp_path, data="no/such/file.csv")
    assert again.repeated
    assert again.report_id == first.report_id
    assert [len(server.got) for server in servers] == [1, 1, 1]


def test_what_was_cut_off_goes_on_with_the_same_bytes(
    servers: list[Scripted], certificates: Path, tmp_path: Path, pauses: list[float]
) -> None:
    """One server is away for all attempts, another answers and the answer is lost."""
    signed = plan_for(addresses(servers))
    servers[1].replies = [BUSY] * 3
    servers[2].replies = [None]
    with pytest.raises(DeploymentError, match=r"too many reports at once\. The report is kept"):
        send(signed, certificates, tmp_path, attempts=3)
    assert [len(server.got) for server in servers] == [1, 3, 2]
    assert len(pauses) == 2
    assert min(pauses) >= 7  # as the server asks
    done = send(signed, certificates, tmp_path, data=[0] * 50)
    assert done.repeated
    assert [len(server.got) for server in servers] == [1, 4, 2]
    assert restored(servers, signed) == COUNTS  # of one and the same report


def test_pauses_double_and_have_a_random_part(
    servers: list[Scripted], certificates: Path, tmp_path: Path, pauses: list[float]
) -> None:
    servers[0].replies = [(500, {}, {})] * 5
    send(plan_for(addresses(servers)), certificates, tmp_path)
    assert len(pauses) == 5
    for number, pause in enumerate(pauses):
        assert 0.5 * 2**number <= pause <= 1.5 * 2**number


@pytest.mark.parametrize("status", [400, 403, 409, 410, 413, 422])
def test_a_refusal_is_final_for_that_server_alone(
    status: int, servers: list[Scripted], certificates: Path, tmp_path: Path, pauses: list[float]
) -> None:
    servers[0].replies = [(status, {"error": "words \x1b[2J of the server"}, {})]
    with pytest.raises(DeploymentError, match=r"refused the report: words .* of the server") as got:
        send(plan_for(addresses(servers)), certificates, tmp_path)
    assert "\x1b" not in str(got.value)
    assert [len(server.got) for server in servers] == [1, 1, 1]
    assert pauses == []


@pytest.mark.parametrize(
    "reply",
    [
        (200, {}, {}),
        (200, {"accepted": 1}, {}),
        (404, {"error": "no such plan"}, {}),
        (302, {}, {"Location": "https://elsewhere.example"}),
        (503, {"error": ["no", "text"]}, {"Retry-After": "soon"}),
        (429, {"error": "x" * 5000}, {"Retry-After": "9" * 50}),
    ],
)
def test_odd_answers_are_no_answers(
    reply: Any, servers: list[Scripted], certificates: Path, tmp_path: Path, pauses: list[float]
) -> None:
    servers[0].replies = [reply]
    send(plan_for(addresses(servers)), certificates, tmp_path)
    assert [len(server.got) for server in servers] == [2, 1, 1]
    assert max(pauses) <= 300


def test_nothing_goes_to_a_server_with_another_certificate(
    servers: list[Scripted], certificates: Path, tmp_path: Path, pauses: list[float]
) -> None:
    write_certificates(tmp_path)
    with pytest.raises(DeploymentError, match="certificate is not accepted") as refused:
        send(plan_for(addresses(servers)), tmp_path, tmp_path)
    assert pauses == []  # it would not be accepted a second later
    assert "no authority that this machine trusts has signed it" in str(refused.value)
    assert "--root-certificates" in str(refused.value)
    assert [server.got for server in servers] == [[], [], []]
    own = certificates / "server.pem"  # the servers' own certificate, pinned
    assert send(plan_for(addresses(servers)), tmp_path, tmp_path / "other", roots=own)
    for wrong in (tmp_path / "none.pem", certificates / "server.key", tmp_path):
        with pytest.raises(DeploymentError, match="certificate"):
            send(plan_for(addresses(servers)), tmp_path, tmp_path / "third", roots=wrong)


def test_what_is_kept_holds_no_count_and_is_private(tmp_path: Path) -> None:
    signed = plan_for(NOWHERE)
    job = prepare(signed, reference=REFERENCE, home=tmp_path)
    made = job.make(np.array(COUNTS))
    assert job.path.stat().st_mode & 0o777 == 0o600
    kept = json.loads(job.path.read_text())
    fields = {"format", "version", "plan", "period", "report_id", "messages", "taken"}
    assert set(kept) == fields
    assert job.kept() == made
    done = made.with_taken(2).with_taken(1)
    assert not done.is_done
    done = done.with_taken(3)
    assert done.is_done
    assert done.messages == ()  # nothing sealed is left behind
    changes: list[dict[str, Any]] = [
        {"period": 1},
        {"plan": "ab" * 32},
        {"report_id": "00" * 16},
        {"messages": kept["messages"][::-1]},
        {"messages": kept["messages"][:2]},
        {"messages": []},
        {"taken": [True] * 3},
        {"taken": [False]},
    ]
    for change in changes:
        job.path.write_text(json.dumps({**kept, **change}))
        with pytest.raises(InvalidInputError, match="not the report of this plan"):
            job.kept()
    job.path.write_text("{")
    with pytest.raises(InvalidInputError):
        fk.report(signed, RECORDS, reference=REFERENCE, home=tmp_path)


def test_of_two_processes_one_makes_the_report(tmp_path: Path) -> None:
    signed = plan_for(NOWHERE)
    job = prepare(signed, reference=REFERENCE, home=tmp_path)
    first, second = job.make(np.array(COUNTS)), job.make(np.array([9, 9, 9, 9, 36]))
    assert first == second


def test_a_roster_wants_an_identity(
    servers: list[Scripted], certificates: Path, tmp_path: Path
) -> None:
    identity = fk.SigningKey.generate()
    others = [fk.SigningKey.generate() for _ in range(3)]
    roster = Roster(frozenset(bytes.fromhex(key.public) for key in (identity, *others)))
    signed = plan_for(addresses(servers), roster=roster.fingerprint)
    with pytest.raises(PolicyRefusal, match="no identity"):
        send(signed, certificates, tmp_path)
    identity.save(tmp_path / "identity.pem")
    done = send(signed, certificates, tmp_path)
    headers = [read_header(server.got[0]) for server in servers]
    assert {each.identity for each in headers} == {bytes.fromhex(identity.public)}
    assert list(done.sizes.values()) == [len(server.got[0]) for server in servers]


def test_a_plan_that_was_changed_names_no_servers(tmp_path: Path) -> None:
    """Three servers of whoever changed it could restore the counts."""
    signed, other = plan_for(NOWHERE), plan_for(("https://a.b", "https://c.d", "https://e.f"))
    changed = replace(signed, plan=other.plan)
    with pytest.raises(PolicyRefusal, match="changed after it was signed"):
        fk.report(changed, RECORDS, reference=REFERENCE, home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_client_is_told_who_names_the_servers(
    servers: list[Scripted], certificates: Path, tmp_path: Path
) -> None:
    signed, told = plan_for(addresses(servers)), list[str]()
    trusting = Policy(organisers=frozenset({signed.signer}))
    assert prepare(signed, reference=REFERENCE, policy=trusting).unchecked == ""
    assert "by nobody" in prepare(signed.plan, reference=REFERENCE).unchecked
    send(signed, certificates, tmp_path / "a", policy=trusting, note=told.append)
    assert not any(signed.signer in each for each in told)
    send(signed, certificates, tmp_path / "b", note=told.append)
    assert sum(signed.signer in each for each in told) == 1


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(largest_epsilon=0.5), "exceeds the limit 0.5"),
        (Policy(organisers=frozenset({"ab" * 32})), "not signed by an organiser"),
        (Policy(trusts=frozenset({"none"})), "trust 'servers'"),
        (Policy(populations=frozenset({"others"})), "another than this client"),
        (Policy(most_points=2), "3 counts are asked"),
        (Policy(units=frozenset({"client"})), "one record is protected"),
    ],
)
def test_the_clients_policy_is_asked_first(policy: Policy, words: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyRefusal, match=words):
        fk.report(plan_for(NOWHERE), RECORDS, reference=REFERENCE, policy=policy, home=tmp_path)
    trusting = Policy(organisers=frozenset({ORGANISER.public}))
    prepare(plan_for(NOWHERE), reference=REFERENCE, policy=trusting)
    assert list(tmp_path.iterdir()) == []


def test_whole_clients_report_exactly_what_they_draw(
    servers: list[Scripted], certificates: Path, tmp_path: Path
) -> None:
    signed = plan_for(addresses(servers), unit=WholeClient(5))
    send(signed, certificates, tmp_path)
    assert restored(servers, signed)[-1] == 5


def test_every_block_adds_up_to_the_number_of_records(tmp_path: Path) -> None:
    """Of the whole, of which some cells are asked, and of columns."""
    rng = np.random.default_rng(7)
    public = {"age": rng.integers(0, 6, 400), "plan": rng.choice(["a", "b", "c"], 400)}
    reference = fk.Reference.fit(pl.DataFrame(public), bins=4)
    asked = tuple(
        AskedView(columns=view.columns, points=view.size)
        for view in reference.views
        if len(view.columns) == 1
    )
    about: dict[str, Any] = {"divergence": "tv", "views": tuple(view.columns for view in asked)}
    signed = plan_for(
        NOWHERE,
        reference=reference.fingerprint,
        views=(AskedView(points=5), *asked),
        questions=(
            Question(share=0.5, release="counts"),
            Question(share=0.5, release="counts", skew=0.0, **about),
        ),
    )
    data = pl.DataFrame({"age": [0, 1, 99, None, 3], "plan": ["a", "z", "b", "c", "c"]})
    job = prepare(signed, reference=reference, home=tmp_path)
    vector = job.count(data)
    blocks = [len(cells) + 1 for cells in job.cells.values()]
    assert len(vector) == sum(blocks) + 1
    starts = np.cumsum([0, *blocks[:-1]])
    assert np.add.reduceat(vector[:-1], starts).tolist() == [5] * len(blocks)
    assert vector[-1] == 5
    assert len(set(job.cells[""])) == 5
    counted = dict(zip(job.cells["plan"], vector[starts[-1] :].tolist(), strict=False))
    assert counted["plan=c"] == 2
    again = prepare(signed, reference=reference)
    assert again.cells == job.cells  # nobody has to ask


def test_periods_of_a_series_are_told_apart(tmp_path: Path) -> None:
    series = Series(every="day", first="2026-01-05", periods=3)
    signed = plan_for(NOWHERE, when=series)
    (tmp_path / "data").mkdir()
    for day, lines in (("2026-01-05", "0\n0\n"), ("2026-01-06", "1\n")):
        (tmp_path / "data" / f"{day}.csv").write_text("cell\n" + lines)
    vectors = []
    for period in range(2):
        job = prepare(signed, reference=REFERENCE, period=period, home=tmp_path)
        vectors.append(job.count(tmp_path / "data").tolist())
        kept = job.make(np.array(vectors[-1]))
        assert {read_header(message).period for message in kept.messages} == {period}
    assert [vector[-1] for vector in vectors] == [2, 1]
    assert len(list((tmp_path / "reports").iterdir())) == 2
    at = "2026-01-07T01:00:00+00:00"
    assert prepare(signed, reference=REFERENCE, home=tmp_path, at=at).period == 1
    with pytest.raises(PolicyRefusal, match="not over yet"):
        prepare(signed, reference=REFERENCE, period=2, at=at)
    with pytest.raises(PolicyRefusal, match="the plan does not have"):
        prepare(signed, reference=REFERENCE, period=3, at=at)


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture
def files(servers: list[Scripted], tmp_path: Path) -> list[str | Path]:
    plan = write_plan(tmp_path, plan_for(addresses(servers)))
    data = tmp_path / "records.csv"
    data.write_text("cell\n" + "\n".join(map(str, RECORDS)) + "\n")
    return [plan, data, "--home", tmp_path / "home"]


def test_a_dry_run_shows_sizes_and_no_count(
    files: list[str | Path], servers: list[Scripted], tmp_path: Path
) -> None:
    shown = run(*files, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "Nothing was sent" in shown.output
    for server in servers:
        assert server.address in shown.output
        assert server.got == []
    assert "counts of 3 cells of the whole" in shown.output
    (tmp_path / "records.csv").write_text("cell\n1\n")
    assert run(*files, "--dry-run").output == shown.output  # nothing in it depends on a record
    told = run(*files, "--dry-run", "--show-counts")
    assert "PRIVATE, the counts in this order: 0 1 0 0 1" in told.output
    assert not (tmp_path / "home").exists()
    plan, _, *home = files
    document = json.loads(run(plan, *home, "--dry-run", "--json").stdout)  # needs no records
    assert document["addresses"] == [server.address for server in servers]
    assert document["servers"] == [key.public for key in KEYS["hybrid"]]
    assert document["cells"] == {"": ["0", "1", "2"]}
    assert "counts" not in document
    assert "--organiser is malformed" in run(*files, "--dry-run", "--organiser", "abc").output
    assert "--organiser is empty" in run(*files, "--dry-run", "--organiser", "").output
    for wrong in ([*files, "--show-counts"], [plan], [plan, "--dry-run", "--show-counts"]):
        assert run(*wrong).exit_code == 2


def test_the_command_says_when_it_is_done(files: list[str | Path], certificates: Path) -> None:
    roots: list[str | Path] = ["--root-certificates", certificates / "ca.pem"]
    first = run(*files, *roots)
    assert first.exit_code == 0, first.output
    assert "Done: all three servers have the report" in first.stdout
    again = json.loads(run(*files, *roots, "--json").stdout)
    assert again["done"] is True
    assert again["repeated"] is True
    other = run(files[0], "of-another.csv", *files[2:], *roots)
    assert "of-another.csv was not read" in other.stderr
    assert "--home" in other.stderr
    assert "--home" not in first.stderr
    assert again["report_id"] in first.stdout
    for text in (first.stdout, first.stderr):
        assert not any(f" {count} " in text for count in COUNTS)


LOADED = """
import sys
from pathlib import Path
import fedprikl as fk
from fedprikl.deployment import delivery
delivery.post = lambda *_, **__: delivery.Answer(taken=True)
done = fk.report(sys.argv[1], sys.argv[2], home=sys.argv[3])
assert not done.repeated
def is_other(module):
    return "site-packages" in str(getattr(module, "__file__", None) or "")
print(*sorted({name.partition(".")[0] for name, m in sys.modules.items() if is_other(m)}))
print(*sorted({n.split(".")[1] for n in sys.modules if n.startswith("fedprikl.")}))
"""


def test_a_client_loads_numpy_and_cryptography_only(files: list[str | Path]) -> None:
    """And of this package no estimation, no planning and no pages."""
    arguments = [str(files[0]), str(files[1]), str(files[3])]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    others, own = (set(line.split()) for line in done.stdout.splitlines())
    assert {name for name in others if not name.startswith("_")} == {"numpy", "cryptography"}
    assert not own & {"estimation", "planning", "reporting", "front", "cli", "audit", "dashboard"}
