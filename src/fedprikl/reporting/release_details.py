"""Everything else about a release, folded: formulas, statistics, tables, parameters, signature."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedprikl.protocol import Plan, Release
from fedprikl.protocol.column_answer import ColumnAnswer
from fedprikl.reporting.column_facts import HEAD, NOTE, facts_of
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.headline import ranked
from fedprikl.reporting.page import fact_table, fold, paragraphs, table
from fedprikl.reporting.texts import clean, percent

__all__ = ["details"]

CELL_HEAD = ("category", "reference", "now", "95% interval", "count, with noise", "moved")
WITNESS_HEAD = ("about", "statistic", "value", "threshold", "above it")


def details(
    release: Release,
    plan: Plan,
    costs: Mapping[str, str],
    absent: Sequence[str],
    *,
    judged: bool = True,
) -> Iterator[str]:
    """One fold after the other. `judged`: by itself, and not as one of a series."""
    facts = ReleaseFacts.of(release, absent)
    order = ranked(release.columns)
    if judged:
        words = (facts.drift, *facts.answers)
        yield fold("The verdict in numbers", [*map(paragraphs, words), _witnesses(release)])
    if judged and order:
        rows = [each.row for each in facts_of(order)]
        yield fold("Columns in numbers", [table(HEAD, rows, look="last"), paragraphs(NOTE, "note")])
    if order:
        yield fold("Every category of every column", [*map(_cells, order)], printed=False)
    yield fold("Who was counted", [paragraphs(facts.counted), fact_table(_asked(release))])
    yield fold("What is protected, in full", [paragraphs(facts.privacy)])
    if costs:
        yield fold("What it cost", [fact_table(costs)])
    yield fold("Parameters of the plan", [fact_table(_parameters(plan))], printed=False)
    yield fold("Signature", [fact_table(_signature(release))], printed=False)


def _witnesses(release: Release) -> str:
    """Every statistic that a verdict rests on."""
    spoken = (
        [] if release.verdict is None else [("the whole", w) for w in release.verdict.witnesses]
    )
    spoken += [(column.name, w) for column in ranked(release.columns) for w in column.witnesses]
    if not spoken:
        return ""
    rows = [
        (
            about,
            w.name,
            f"{w.statistic:.4g} {w.unit}",
            f"{w.threshold:.4g} {w.unit}",
            _yes(w.speaks),
        )
        for about, w in spoken
    ]
    return table(WITNESS_HEAD, rows, caption="Statistics beside their thresholds")


def _yes(speaks: bool) -> str:
    return "yes" if speaks else "no"


def _cells(column: ColumnAnswer) -> str:
    """All cells of a column, and how far it is from the reference in every divergence."""
    rows = [
        (
            cell.label,
            percent(cell.reference),
            percent(cell.share),
            " to ".join(map(percent, cell.interval)),
            _count(cell.count),
            {"up": "more", "down": "fewer", "": "cannot be told"}[cell.moved],
        )
        for cell in column.cells
    ]
    before = percent(max(0.0, 1 - sum(cell.reference for cell in column.cells)))
    rows.append(("in no category above", before, "", "", _count(column.rest), ""))
    sizes = "".join(
        f" {clean(each.target)} = {each.value:.4g} {clean(each.unit)}".rstrip() + "."
        for each in column.answers
    )
    return table(CELL_HEAD, rows, caption=f"{clean(column.name)}.{sizes}")


def _count(count: float) -> str:
    """A noisy count: noise is of whole numbers or of any."""
    return f"{count:,.{0 if count == round(count) else 1}f}" if abs(count) < 1e9 else f"{count:.6g}"


def _asked(release: Release) -> dict[str, str]:
    cohorts = release.cohorts
    dropped = sum(1 for cohort in cohorts if cohort.reason)
    return {
        "clients invited": f"{sum(cohort.clients for cohort in cohorts):,}",
        "clients in the sums": f"{sum(cohort.included for cohort in cohorts):,}",
        "cohorts (secure sums)": f"{len(cohorts)}, of which {dropped} were dropped",
        "counts each client sent, masked": f"{release.payload} and its number of records",
        "records of these clients": f"{release.records:,}",
    }


def _parameters(plan: Plan) -> dict[str, str]:
    """Each field of the plan and of its questions."""
    fields = plan.to_dict()
    for place, question in enumerate(fields.pop("questions"), start=1):
        which = "question" if len(plan.questions) == 1 else f"question {place}"
        fields |= {f"{which}: {name}": value for name, value in question.items()}
    for name, value in (fields.pop("columns", None) or {}).items():
        fields[f"columns: {name}"] = value
    return {name: _shown(value) for name, value in fields.items()}


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return (
            ", ".join(" and ".join(v) if isinstance(v, list | tuple) else str(v) for v in value)
            or "all"
        )
    return "none" if value is None else str(value)


def _signature(release: Release) -> dict[str, str]:
    return {
        "released": release.released_at,
        "software": release.software,
        "round": release.round_id,
        "plan (fingerprint)": release.plan,
        "reference (fingerprint)": release.reference,
        "signer (public key)": release.signer or "not signed",
        "signature": release.signature or "not signed",
    }
