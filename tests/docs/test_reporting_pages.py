"""The pages about reports say what the code does: lengths, labels, fields, costs."""

import re
from typing import get_args

import pytest

from fedprikl.protocol import report
from fedprikl.protocol.report import SuiteName, message_bytes
from tests.benchmark_modules import loaded
from tests.docs.pages import ROOT, text_of

SPECIFICATION, HOW_TO = text_of("reference/report-message.md"), text_of("howto/reporting.md")


def numbers(text: str) -> list[int]:
    return [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", text)]


def test_the_header_is_laid_out_as_the_page_says() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (.*?) \|$", SPECIFICATION, re.MULTILINE)
    at = 0
    for offset, size, _ in rows:
        assert int(offset) == at
        at += int(size)
    assert at == 60 + 32
    header = report.ReportHeader(
        plan=b"p" * 32, period=0x01020304, server=3, report_id=b"i" * 16, suite="hybrid"
    ).to_bytes()
    assert header == b"FPR\1\2\3\0\0" + b"\4\3\2\1" + b"p" * 32 + b"i" * 16
    for label in (report._SEAL, report._SIGN):
        assert f'"{label.decode()}"' in SPECIFICATION


def test_every_suite_is_specified() -> None:
    assert get_args(SuiteName) == ("x25519", "hybrid")
    (row,) = re.findall(r"what HPKE sends of the key.*", SPECIFICATION)
    sizes: dict[SuiteName, int] = {"x25519": 32, "hybrid": 1120}
    for suite, size in sizes.items():
        assert f"{size:,} for `{suite}`" in row or f"{size:,} bytes for `{suite}`" in row
        assert message_bytes(0, server=1, suite=suite, signed=False) == 60 + size + 32 + 16


@pytest.mark.parametrize(
    ("suite", "signed"), [("hybrid", False), ("hybrid", True), ("x25519", False)]
)
def test_the_lengths_on_the_how_to_page(suite: SuiteName, signed: bool) -> None:
    name = rf"`{suite}`{', signed' * signed}"
    (row,) = re.findall(rf"^\| {name} \| [\d.]+ ms \| (.*) \|$", HOW_TO, re.MULTILINE)
    with loaded("report_cost", parts=()) as bench:
        entries = bench.report_cost.ENTRIES
        cells = bench.report_cost.CELLS
    sizes = [message_bytes(entries, server=i, suite=suite, signed=signed) for i in (1, 2, 3)]
    text, total = row.split("|")
    assert re.findall(r"\d,\d{3}|\d+", text) == [f"{size:,}" for size in sizes]
    assert numbers(total) == [sum(sizes)]
    keys = 96 if suite == "x25519" else 3360
    assert sum(sizes) == 16 * (cells + 1 + 2) + 32 + 228 + keys + 288 * signed


def test_the_page_names_functions_that_the_client_has() -> None:
    client = (ROOT / "contrib" / "js" / "report.mjs").read_text(encoding="utf-8")
    for name in ("report", "RefusedError", "UnreachableError"):
        assert re.search(rf"^export (function|class) {name}\b", client, re.MULTILINE)
        assert name in HOW_TO
