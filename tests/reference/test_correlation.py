"""Correlation: known correlations are found, unrelated records have none, and files keep it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from experiments.handwriting import load_compact
from experiments.paper.world import data_folder
from typer.testing import CliRunner

from fedprikl import InvalidInputError, Reference
from fedprikl.checks import Floats, Ints
from fedprikl.cli.app import app
from fedprikl.errors import ReferenceFileError
from fedprikl.records import fit_reference
from fedprikl.reference import Correlation, files
from tests.false_alarm import looks_centred

pytestmark = pytest.mark.slow

FRAME = pl.DataFrame({"id": [1, 2, 3, 4, 4], "gaps": [1, None, 2, None, 3], "x": list("aabbc")})
DIGITS = data_folder() / "femnist_digits.npz"


def zipf(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    normalised: Floats = mass / mass.sum()
    return normalised


def clustered(
    rng: np.random.Generator, *, cells: int, clients: int, icc: float
) -> tuple[Ints, Ints]:
    """Every record's client and cell; each client draws from its own Dirichlet distribution."""
    sizes = rng.negative_binomial(2, 0.08, clients) + 1
    pi = zipf(cells)
    own = [rng.dirichlet(pi * (1 - icc) / icc) if icc else pi for _ in range(clients)]
    held = [rng.choice(cells, n, p=p / p.sum()) for n, p in zip(sizes, own, strict=True)]
    return np.repeat(np.arange(clients), sizes), np.concatenate(held)


@pytest.mark.parametrize(("cells", "clients"), [(62, 60), (1500, 200)])
@pytest.mark.parametrize("icc", [0.02, 0.1, 0.3])
def test_a_known_correlation_is_found(cells: int, clients: int, icc: float) -> None:
    rng = np.random.default_rng(1)
    found = np.array(
        [
            Correlation.estimate(*clustered(rng, cells=cells, clients=clients, icc=icc)).icc
            for _ in range(20)
        ]
    )
    assert found.mean() == pytest.approx(icc, rel=0.15)


def test_weights_from_the_same_half_would_hide_half_of_it() -> None:
    """Why the clients are split: the plain Pearson form finds less than half of 0.1."""
    client, cell = clustered(np.random.default_rng(1), cells=1500, clients=200, icc=0.1)
    table = np.zeros((client.max() + 1, cell.max() + 1))
    np.add.at(table, (client, cell), 1)
    table = table[:, table.sum(axis=0) > 0]
    sizes, pi = table.sum(axis=1), table.sum(axis=0) / table.sum()
    scatter = float(np.sum((table - sizes[:, None] * pi) ** 2 / pi))
    plain = scatter / (table.sum() * (len(pi) - 1)) * len(sizes) / (len(sizes) - 1)
    assert (plain - 1) / (sizes @ sizes / sizes.sum() - 1) < 0.05
    assert Correlation.estimate(client, cell).icc > 0.08


def test_unrelated_records_have_no_correlation(rng: np.random.Generator) -> None:
    client, cell = clustered(rng, cells=300, clients=300, icc=0.0)
    found = Correlation.estimate(client, cell)
    assert found.icc < 0.001
    assert found.design_effect(clients=300, records=len(cell)) == pytest.approx(1, abs=0.05)


def test_without_flooring_it_is_centred_at_zero(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E is the exact mean of S under random dealing, so the excess is 0 on average."""
    client, cell = clustered(rng, cells=40, clients=12, icc=0.3)
    monkeypatch.setattr("fedprikl.reference.correlation.max", lambda a, _: a, raising=False)
    monkeypatch.setattr(Correlation, "__post_init__", lambda _: None)
    dealt = [Correlation.estimate(client, rng.permutation(cell)).icc for _ in range(1000)]
    assert looks_centred(np.array(dealt), 0.0)
    assert not looks_centred(np.array(dealt), 0.002)


def test_the_design_effect_of_a_population() -> None:
    found = Correlation(icc=0.1, size_variation=0.5, clients=10)
    assert found.design_effect(clients=100, records=1000) == pytest.approx(1 + (15 - 1) * 0.1)
    assert found.design_effect(clients=100, records=50) == 1  # a record per client or fewer


def test_the_design_effect_around_a_counted_reference() -> None:
    exact = Reference.from_probabilities([0.5, 0.5])
    assert exact.whole.design_effect(clients=10, records=1000) == 1
    counted = Reference.from_counts([1000, 1000])
    assert counted.whole.design_effect(clients=10, records=1000) == 1.5
    kind = Correlation(icc=0.1, size_variation=0.0, clients=100)  # 20 records each
    related = Reference(replace(counted.whole, correlation=kind))
    expected = (1 + 99 * 0.1) + (1 + 19 * 0.1) / 2
    assert related.whole.design_effect(clients=10, records=1000) == pytest.approx(expected)


def test_equal_records_may_be_counted(rng: np.random.Generator) -> None:
    client, cell = clustered(rng, cells=20, clients=30, icc=0.2)
    keys, rows = np.unique(client * 20 + cell, return_counts=True)
    assert Correlation.estimate(keys // 20, keys % 20, rows) == Correlation.estimate(client, cell)


def test_formats_agree(rng: np.random.Generator, tmp_path: Path) -> None:
    client, cell = clustered(rng, cells=9, clients=40, icc=0.2)
    frame = pl.DataFrame({"user": client, "city": [f"c{x}" for x in cell], "age": cell * 1.5})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    fitted = Reference.fit(frame, client="user", bins=4)
    assert fitted.whole.correlation is not None
    alone = Correlation.estimate(client, cell)
    assert replace(fitted.whole.correlation, held="") == replace(alone, held="")
    for name in ("a.csv", "a.parquet"):
        again = fit_reference(tmp_path / name, client="user", bins=4)
        assert again.fingerprint == fitted.fingerprint
    plain = Reference.fit(frame, columns=["city", "age"], bins=4)
    assert plain.fingerprint != fitted.fingerprint
    assert plain.whole.mass.tolist() == fitted.whole.mass.tolist()


def test_a_file_keeps_it_and_old_files_still_read(rng: np.random.Generator, tmp_path: Path) -> None:
    client, cell = clustered(rng, cells=9, clients=40, icc=0.2)
    found = Reference.fit(pl.DataFrame({"user": client, "cell": cell}), client="user")
    found.save(tmp_path / "ref.json")
    again = Reference.load(tmp_path / "ref.json")
    assert again.whole.correlation == found.whole.correlation
    assert again.fingerprint == found.fingerprint
    document = json.loads((tmp_path / "ref.json").read_text(encoding="utf-8"))
    old = json.loads(files.dumps(replace(found.whole, correlation=None)))
    assert "correlation" not in old
    assert files.loads(json.dumps(old))[0].correlation is None
    held = document["correlation"]["held"]
    odd: tuple[Any, ...] = (None, "x", held + ";", held.replace(" ", "  ", 1), "3 1", "1*0", "1*-2")
    for change in (
        *(
            {"icc": 0.5},
            {"icc": 2.0},
            {"icc": None},
            {"colour": 1},
            {"discount": 1.0},
            {"missed": 2},
        ),
        *({"held": other} for other in odd),
    ):
        damaged = document | {"correlation": document["correlation"] | change}
        with pytest.raises(ReferenceFileError):
            files.loads(json.dumps(damaged))
    with pytest.raises(ReferenceFileError, match="fingerprint"):
        files.loads(json.dumps({k: v for k, v in document.items() if k != "correlation"}))


def test_a_reference_without_ids_keeps_its_fingerprint() -> None:
    """As in fedprikl 1.0: plans name it for years."""
    written = "c21161556abbad4d6b6e5a27a3bbb339422bac0e44138585724d0d2697aeea9e"
    assert Reference.from_counts([3, 0, 5], other=2).fingerprint == written


def test_the_command(rng: np.random.Generator, tmp_path: Path) -> None:
    client, cell = clustered(rng, cells=9, clients=40, icc=0.2)
    pl.DataFrame({"user_id": client, "city": cell}).write_csv(tmp_path / "data.csv")
    options = [str(tmp_path / "data.csv"), "-o", str(tmp_path / "r.json"), "--client-column"]
    result = CliRunner().invoke(app, ["reference", *options, "user_id", "--json"])
    document = json.loads(result.stdout)
    assert [column["name"] for column in document["columns"]] == ["city"]
    assert document["correlation"]["clients"] == 40
    assert document["correlation"]["icc"] == pytest.approx(0.2, rel=0.5)
    shown = CliRunner().invoke(app, ["reference", *options, "user_id", "--force"])
    assert "40 clients" in shown.stdout
    result = CliRunner().invoke(app, ["reference", *options, "nobody", "--force"])
    assert "no column 'nobody'" in str(result.exception)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Correlation.estimate([1, 2, 3], np.arange(3)), "at least 4"),
        (lambda: Correlation.estimate([], np.arange(0)), "at least 4"),
        (lambda: Correlation.estimate(np.arange(9), np.arange(9)), "holds one record"),
        (lambda: Correlation.estimate([1, 2], np.arange(3)), "one client and one cell"),
        (lambda: Correlation(icc=1.5, size_variation=0.0, clients=5), "0 .. 1"),
        (lambda: Correlation(icc=0.5, size_variation=-1.0, clients=5), "cannot be negative"),
        (lambda: Reference.fit(FRAME, client="who"), "no column 'who'"),
        (lambda: Reference.fit(FRAME, client="id", columns=["id", "x"]), "cannot be compared"),
        (lambda: Reference.fit(FRAME, client="gaps"), "2 rows of column 'gaps' name no client"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_the_old_name_of_the_client_column_still_works() -> None:
    """docs/stability.md: it warns and names the new one, until the next major version."""
    found = Reference.fit(FRAME, client="id", columns=["x"])
    with pytest.warns(FutureWarning, match="now called `client`.*client='id'"):
        assert Reference.fit(FRAME, clients="id", columns=["x"]).fingerprint == found.fingerprint
    with pytest.warns(FutureWarning), pytest.raises(InvalidInputError, match="one of both"):
        Reference.fit(FRAME, client="gaps", clients="id", columns=["x"])


def test_one_cell_shows_nothing() -> None:
    assert Correlation.estimate([1, 1, 2, 2, 3, 3, 4, 4], np.zeros(8, np.int64)).icc == 0


@pytest.mark.skipif(not DIGITS.exists(), reason="needs the FEMNIST digits, which are not at hand")
def test_one_writers_images_are_alike() -> None:
    """Real handwriting: a design effect of 1.2 to 2 per digit, none once the writers are mixed."""
    digits, rng = load_compact(DIGITS), np.random.default_rng(2)
    for digit in range(10):
        one = digits.population(digit)
        found = Correlation.estimate(one.client, one.cell)
        assert 0.025 < found.icc < 0.09
        assert 1.2 < found.design_effect(clients=found.clients, records=one.records) < 2
        assert Correlation.estimate(rng.permutation(one.client), one.cell).icc < 0.005
