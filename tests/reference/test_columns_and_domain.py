"""Records become cells: categories, bins, products, images; unknown ones become "other"."""

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl import InvalidInputError, Reference
from fedprikl.reference import Bins, BlockCode, Categories, Domain, Indices, Table
from fedprikl.reference import fit as fitting
from fedprikl.reference.columns import OUT_OF_DOMAIN, Column, Reader
from fedprikl.reference.fit import fit_table
from fedprikl.reference.values import MISSING_TEXTS, level_text

FRAMES = [pd.DataFrame, pl.DataFrame, pa.table]
ROWS = {
    "city": ["Basel", "Bern", "Basel", None, "Zug"],
    "age": [31.0, 25.5, float("nan"), 47.0, 58.0],
    "smoker": [True, False, True, True, None],
}


def encode(column: Column, values: list[Any]) -> list[int]:
    levels: list[int] = Reader(column, MISSING_TEXTS)(values).tolist()
    return levels


def fit(values: list[Any], bins: int = 10) -> Column:
    (column,) = fit_table(
        ["x"], lambda: [{"x": values}], bins=bins, categorical=(), missing=MISSING_TEXTS
    ).columns
    return column


@pytest.mark.parametrize("frame", FRAMES)
def test_every_kind_of_frame_gives_the_same_reference(frame: Any) -> None:
    reference = Reference.fit(frame(ROWS), bins=2)
    assert reference.fingerprint == Reference.fit(pl.DataFrame(ROWS), bins=2).fingerprint
    labels = [reference.domain.label(cell) for cell in range(reference.domain.size)]
    assert labels == [
        "city=Basel, age=up to 31, smoker=True",
        "city=Basel, age=missing, smoker=True",
        "city=Bern, age=up to 31, smoker=False",
        "city=Zug, age=over 31, smoker=missing",
        "city=missing, age=over 31, smoker=True",
        "other",
    ]
    assert reference.count(frame(ROWS)).tolist() == [1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("frame", FRAMES)
def test_unseen_values_and_combinations_go_to_other(frame: Any) -> None:
    reference = Reference.fit(frame({"a": ["x", "y"], "b": ["1", "2"]}))
    seen_apart_but_not_together = {"a": ["x"], "b": ["2"]}
    unseen, missing = {"a": ["z"], "b": ["1"]}, {"a": [None], "b": ["1"]}
    for rows in (seen_apart_but_not_together, unseen, missing):
        assert reference.count(frame(rows)).tolist() == [0, 0, 1]


def test_a_lazy_frame_is_collected() -> None:
    lazy = pl.LazyFrame({"a": ["x", "x", "y"]})
    assert Reference.fit(lazy).whole.mass.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "value", [1, 1.0, "1", "1.0", np.int64(1), np.float32(1), Decimal("1.00"), np.float64(1)]
)
def test_numbers_and_their_text_are_the_same_level(value: Any) -> None:
    assert level_text(value) == "1"


def test_a_client_may_store_a_category_as_number_or_text() -> None:
    reference = Reference.fit(pl.DataFrame({"ward": [1, 2, 2]}))
    with_a_gap = pd.DataFrame({"ward": [1.0, float("nan"), 2.0]})  # pandas turns it into floats
    assert reference.count(with_a_gap).tolist() == [1, 1, 1]
    assert reference.count(pl.DataFrame({"ward": ["2", "1", "9"]})).tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [True, np.bool_(True), "True", "true", "TRUE"])
def test_truth_values_and_their_text_are_the_same_level(value: Any) -> None:
    assert level_text(value) == "True"


def test_minus_zero_is_zero() -> None:
    assert level_text(-0.0) == level_text("-0.0") == level_text(0.0) == "0"


def test_texts_that_only_look_alike_stay_apart() -> None:
    assert level_text("007") == "007"
    assert level_text("1.5") == "1.5"
    assert level_text("v1.0") == "v1.0"
    assert level_text(True) == "True"


def test_single_precision_is_the_same_level_as_double() -> None:
    reference = Reference.fit(pl.DataFrame({"x": [0.1, 0.2]}))
    single = pl.DataFrame({"x": pl.Series([0.1, 0.2], dtype=pl.Float32)})
    assert reference.count(single).tolist() == [1, 1, 0]


def test_a_nested_value_at_a_client_is_other_not_an_error() -> None:
    reference = Reference.fit(pl.DataFrame({"x": ["a", "b"]}))
    assert reference.count(pl.DataFrame({"x": [["a"], ["b"]]})).tolist() == [0, 0, 2]


def test_wide_tables_have_more_codes_than_a_double_can_count(rng: np.random.Generator) -> None:
    frame = pl.DataFrame({f"c{i}": rng.normal(size=200) for i in range(16)})
    reference = Reference.fit(frame)
    assert reference.count(frame).sum() == 200
    assert reference.count(frame)[-1] == 0


def test_categories_are_ordered_by_number_then_text_however_frequent() -> None:
    column = fit(["b", "a", "c", "c", None, "10", "9"])
    assert column == Categories("x", ("9", "10", "a", "b", "c"))
    assert encode(column, ["c", "zz", None]) == [4, OUT_OF_DOMAIN, 5]
    assert column.label(5) == "missing"


def test_true_and_one_are_not_confused_in_a_column_of_objects() -> None:
    frame = pd.DataFrame({"a": pd.Series([True, 1, "1"], dtype=object)})
    reference = Reference.fit(frame, categorical=["a"])
    assert sorted(reference.whole.mass.tolist()) == [0, 1, 2]


def test_bins_are_cut_at_quantiles_and_open_ended() -> None:
    column = fit([float(x) for x in range(1, 101)], 4)
    assert column == Bins("x", (25.0, 50.0, 75.0))
    values = [-1e9, 25.0, 25.1, 76.0, 1e9, float("inf"), None, float("nan")]
    assert encode(column, values) == [0, 0, 1, 3, 3, 3, 4, 4]
    assert [column.label(level) for level in range(5)] == [
        "up to 25",
        "25 to 50",
        "50 to 75",
        "over 75",
        "missing",
    ]


def test_bins_of_text_that_is_no_number_are_unseen() -> None:
    column = Bins("x", (0.0,))
    texts = ["-1", "1e3", " 1 ", "nan", "NA", "NAN", "many", None, "\u0661", "1_0", "true", "1e400"]
    levels = [0, 1, 1, 2, 2, OUT_OF_DOMAIN, OUT_OF_DOMAIN, 2, OUT_OF_DOMAIN, OUT_OF_DOMAIN, 1, 1]
    assert encode(column, texts) == levels


class Trap(int):
    def __float__(self) -> float:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


def test_an_object_that_raises_is_other_alone() -> None:
    frame = pd.DataFrame({"x": pd.Series(["a", Trap(1), "a"], dtype=object)})
    reference = Reference.from_counts({"a": 1})
    assert reference.count(frame.rename(columns={"x": "value"})).tolist() == [2, 1]
    assert encode(Bins("x", (0.0,)), [1, Trap(1), 1]) == [1, OUT_OF_DOMAIN, 1]


def test_dates_beyond_all_calendars_are_other_alone() -> None:
    days = pl.Series("value", [0, 10**8, 0, None], dtype=pl.Int32).cast(pl.Date)
    reference = Reference.from_counts({"1970-01-01": 1})
    for frame in (pl.DataFrame([days]), pl.DataFrame([days]).to_arrow()):
        assert reference.count(frame).tolist() == [2, 2]


def test_a_column_of_one_value_has_one_bin() -> None:
    column = Bins.from_numbers("x", np.array([3.0, 3.0]), 4)
    assert column.edges == ()
    assert column.label(0) == "any number"


def test_integers_with_few_values_are_categories_and_many_are_bins() -> None:
    few = Reference.fit(pl.DataFrame({"x": [1, 2, 3] * 10}))
    many = Reference.fit(pl.DataFrame({"x": list(range(100))}))
    forced = Reference.fit(pl.DataFrame({"x": list(range(100))}), categorical=["x"])
    assert (few.domain.size, many.domain.size, forced.domain.size) == (4, 11, 101)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=50))
def test_every_number_has_exactly_one_bin(values: list[float]) -> None:
    column = Bins("x", (-1.0, 0.0, 2.5))
    levels = encode(column, values)
    for value, level in zip(values, levels, strict=True):
        expected = 4 if np.isnan(value) else sum(value > edge for edge in column.edges)
        assert level == expected


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=40))
def test_no_record_is_ever_lost(values: list[str | None]) -> None:
    reference = Reference.fit(pl.DataFrame({"x": ["a", "a", "b"]}))
    counts = reference.count(pl.DataFrame({"x": pl.Series(values, dtype=pl.String)}))
    assert counts.sum() == len(values)
    assert counts[-1] == sum(value not in ("a", "b") for value in values)


@given(st.data())
def test_codes_and_levels_are_inverse(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    columns = [Categories(f"c{i}", tuple(map(str, range(n)))) for i, n in enumerate(sizes)]
    table = Table(tuple(columns))
    code = data.draw(st.integers(0, table.size - 1))
    assert table.codes(table.levels(np.array([code]))).tolist() == [code]


def test_the_block_code_has_one_bit_per_block() -> None:
    images = np.full((3, 28, 28), 255, np.uint8)
    images[1, 0, 0] = 254
    images[2, 27, 27] = 0
    code = BlockCode()
    assert code.encode(images).tolist() == [0, 1 << 15, 1]
    assert code.label(1 << 15) == "1000/0000/0000/0000"
    assert code.size == 2**16


def test_the_block_code_takes_other_whites_and_thresholds() -> None:
    images = np.ones((1, 28, 28))
    images[0, :7, :7] = 0.5
    assert BlockCode(white=1.0).encode(images).tolist() == [1 << 15]
    assert BlockCode(white=1.0, threshold=0.6).encode(images).tolist() == [0]


def test_a_reference_of_images_knows_the_codes_it_saw() -> None:
    images = np.full((4, 28, 28), 255, np.uint8)
    images[3, 0, 0] = 0
    reference = Reference.fit_images(images)
    unknown = np.zeros((1, 28, 28), np.uint8)
    assert reference.probabilities.tolist() == [0.75, 0.25, 0.0]
    assert reference.count(np.concatenate([images, unknown])).tolist() == [3, 1, 1]


def test_cell_numbers_outside_the_range_are_other() -> None:
    reference = Reference.from_counts([2, 1])
    assert reference.count([0, 1, 1, 2, -1]).tolist() == [1, 2, 2]
    assert reference.count(np.array([], dtype=np.int64)).tolist() == [0, 0, 0]


ODD_NUMBERS: list[Any] = [float("nan"), 0.5, None, "x", "1.5", 2**70, -(2**70), 1j, [1], b"1"]


@pytest.mark.parametrize("odd", ODD_NUMBERS)
def test_an_entry_that_is_no_cell_number_is_other_alone(odd: Any) -> None:
    reference = Reference.from_counts([2, 1, 1])
    assert reference.count([0, 2, odd, 2]).tolist()[:1] == [1]
    assert reference.count([0, 2, odd, 2]).tolist()[2] == 2
    assert reference.count([0, 2, odd, 2]).sum() == 4


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e308, "x", None, 1j, [1, 2], {}])
def test_an_image_that_cannot_be_read_is_other_alone(odd: Any) -> None:
    white: list[Any] = np.full((28, 28), 255).tolist()
    inked: list[Any] = np.zeros((28, 28)).tolist()
    broken = [*white[:-1], [odd] * 28]
    code = BlockCode()
    assert code.encode([white, broken, inked]).tolist() == [0, OUT_OF_DOMAIN, 2**16 - 1]
    assert code.encode([white, white[:5], inked]).tolist() == [0, OUT_OF_DOMAIN, 2**16 - 1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Reference.fit(pl.DataFrame({"a": []})), "no rows"),
        (lambda: Reference.fit(pl.DataFrame({"a": [1]}), columns=["b"]), "no column 'b'"),
        (lambda: Reference.fit(pl.DataFrame({"a": [1]}), categorical=["b"]), "no column 'b'"),
        (lambda: Reference.fit(pl.DataFrame({"a": [1]}), columns=[]), "at least one column"),
        (lambda: Reference.fit(pl.DataFrame({"a": [1]}), columns=["a", "a"]), "named twice"),
        (lambda: Reference.fit(pl.DataFrame({"a": [1]}), bins=0), "at least 1"),
        (lambda: Reference.fit([1, 2]), "data frame"),
        (lambda: Reference.fit(pd.DataFrame([[1, 2], [3, 4]])), "names that are texts"),
        (
            lambda: Reference.fit(pd.DataFrame([[1, 2]], columns=["a", "a"])),
            "cannot be read",
        ),
        (lambda: Domain(Indices(3), np.array([-1])), "at least 0"),
        (lambda: Reference.fit(pl.DataFrame({"a": [[1]]})), "no natural cells"),
        (lambda: Bins.from_numbers("x", np.array([np.inf]), 2), "no finite number"),
        (lambda: Reference.fit_images(np.full((1, 28, 28), np.nan)), "nan"),
        (lambda: BlockCode(side=10), "equal blocks"),
        (lambda: BlockCode(side=30, blocks=5), "at most 4 x 4"),
        (lambda: BlockCode().encode(np.zeros((2, 8, 8))), "shape"),
        (lambda: BlockCode().encode("no"), "array of numbers"),
        (lambda: Reference.fit_images(np.zeros((0, 28, 28))), "empty"),
        (lambda: Domain(Indices(3), np.array([2, 1])), "sorted"),
        (lambda: Domain(Indices(3), np.array([3])), "in range"),
        (lambda: Reference.from_counts([1]).domain.label(2), "outside the domain"),
        (lambda: Reference.from_counts([1]).count("0"), "cell numbers"),
        (
            lambda: Domain(
                Table(tuple(Bins(f"c{i}", tuple(map(float, range(100)))) for i in range(10))),
                np.array([0]),
            ),
            r"about 10\^20 combinations",
        ),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_a_client_without_the_column_is_told_which() -> None:
    reference = Reference.fit(pl.DataFrame({"age": [1, 2]}))
    with pytest.raises(InvalidInputError, match=r"no column 'age'.*it has 'years'"):
        reference.count(pl.DataFrame({"years": [1]}))


def test_a_domain_of_nothing_but_other() -> None:
    domain = Domain(Indices(3), np.array([], dtype=np.int64))
    assert domain.count({"": np.array([0, 1])}).tolist() == [2]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["1", "2.5", "-0.0", "0", "1e400", "", "-999", "007", "x"])),
    st.booleans(),
)
def test_numbers_read_at_once_give_the_columns_of_one_by_one(texts: list[str], many: bool) -> None:
    texts = [*texts, "3", *(map(str, range(10, 20)) if many else ())]
    kinds: list[Any] = [texts]
    if not {"", "007", "x"} & set(texts):
        kinds.append(np.array(texts, dtype=np.float64))
    for values in kinds:
        with pytest.MonkeyPatch.context() as patch:
            at_once = read_as_csv(values)
            patch.setattr(fitting._ColumnFit, "_numbers", lambda *_: None)
            assert at_once == read_as_csv(values)


def read_as_csv(values: Any) -> Table:
    return fit_table(
        ["x"],
        lambda: [{"x": values}],
        bins=4,
        categorical=(),
        missing=("", "-999"),
        texts=True,
    )


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize(
    ("texts", "what"),
    [
        ([f"2026-03-{day:02}" for day in range(1, 29)], "dates or times"),
        ([f"{n}.5" for n in range(20)], "numbers"),
        ([f"{n:03}" for n in range(20)], ""),
        ([f"{n}.5" for n in range(20)] + ["A7"], ""),
        (["2026-03-01", "2026-03-02"], ""),
        ([f"{n}" for n in range(1, 13)], ""),  # months
    ],
)
def test_texts_of_a_frame_that_are_dates_or_numbers_are_remarked(
    library: Any, texts: list[str], what: str
) -> None:
    """They are categories: a warning says so, unless that is wanted, or the remark is taken."""
    frame = library({"x": texts, "y": list(range(len(texts)))})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reference = Reference.fit(frame)
    said = [str(each.message) for each in caught]
    assert len(said) == bool(what)
    assert all(f"'x' is taken as categories, although its texts are {what}" in s for s in said)
    assert all(each.filename == __file__ for each in caught)
    assert reference.views[0].size == len(texts)
    remarks: list[str] = []
    Reference.fit(frame, note=remarks.append)
    assert remarks == said
    Reference.fit(frame, categorical=["x"])


@pytest.mark.parametrize("first", [0, 1, 500])
def test_a_column_that_numbers_the_rows_is_remarked(first: int) -> None:
    """An index that was saved with the rows: in another file it has other numbers."""
    rng = np.random.default_rng(1)
    remarks: list[str] = []
    rows = rng.permutation(2000) + first
    ages = rng.integers(0, 2000, 2000)
    frame = pl.DataFrame({"row": rows, "age": ages, "half": rows / 2, "twice": rows // 2})
    Reference.fit(frame, joint=False, note=remarks.append)
    assert len(remarks) == 1
    assert f"Column 'row' numbers the rows, from {first} to {first + 1999}." in remarks[0]
    Reference.fit(frame[:900], joint=False, note=remarks.append)
    Reference.fit(frame, joint=False, categorical=["row"], note=remarks.append)
    assert len(remarks) == 1
