"""The Grafana dashboard and the alert rules use metrics and labels that exist, and all of them."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fedprikl.monitoring.metrics import METRICS, metrics_text
from tests.monitoring.statuses import SCENES

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/fedprikl-series.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((DEPLOY / "prometheus/fedprikl-rules.yml").read_text(encoding="utf-8"))
SELECTOR = re.compile(r"(fedprikl_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
UNUSED: set[str] = set()  # metrics that no panel shows, on purpose


@cache
def known() -> dict[str, list[dict[str, str]]]:
    """Each metric of an example with the labels of its samples."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(metrics_text([SCENES["drift"]])):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def odd(expression: str) -> list[str]:
    """What an expression names and no metric has."""
    metrics, wrong = known(), []
    for name, inner in SELECTOR.findall(expression):
        samples = metrics.get(name)
        if samples is None:
            wrong.append(name)
            continue
        for label, how, text in MATCHER.findall(inner):
            values = {sample.get(label) for sample in samples}
            if None in values or (how == "=" and text not in values):
                wrong.append(f"{name}{{{label}{how}{text}}}")
    return wrong


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def test_the_check_sees_what_is_wrong() -> None:
    assert odd("fedprikl_series_nothing > 0") == ["fedprikl_series_nothing"]
    assert odd('fedprikl_series_alarms{state="opened"}') != []
    assert odd('fedprikl_series_alarms{colour=~".*"}') != []
    assert odd('fedprikl_series_alarms{state="open"}') == []


def test_every_panel_asks_for_what_exists() -> None:
    assert [wrong for expression in expressions() for wrong in odd(expression)] == []


def test_every_metric_is_shown_or_left_out_on_purpose() -> None:
    used = {name for expression in expressions() for name, _ in SELECTOR.findall(expression)}
    assert {f"fedprikl_series_{name}" for name in METRICS} - used == UNUSED


def test_legends_name_labels_that_exist() -> None:
    metrics = known()
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                for name, _ in SELECTOR.findall(target["expr"]):
                    assert all(label in sample for sample in metrics[name]), (name, label)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_rule_asks_for_what_exists(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert odd(rule["expr"]) == []
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        names = [name for name, _ in SELECTOR.findall(rule["expr"])]
        assert all(label in sample for name in names for sample in known()[name])


def test_rules_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 5
