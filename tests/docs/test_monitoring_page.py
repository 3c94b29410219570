"""docs/monitoring.md: its tables name what exists, and its receiver verifies what is sent."""

import json
import re
import time
from pathlib import Path
from typing import Any

import yaml

from fedprikl.monitoring.metrics import metrics_text
from fedprikl.monitoring.notifications import AGAIN, WebhookSecret, notifications
from tests.docs.pages import code_of
from tests.monitoring.statuses import SCENES
from tests.monitoring.test_dashboards import rules

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")


def test_the_labels_of_every_metric_are_in_the_table() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    part = page.partition("| further labels |")[2].partition("## Of an aggregator")[0]
    told = {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in re.findall(r"^\| (`.*?) \| (.*) \|$", part, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    text = metrics_text([SCENES["drift"]])
    real = {
        name: set(re.findall(r'(\w+)="', labels)) - {"population"}
        for name, labels in re.findall(r"^fedprikl_series_(\w+)\{(.*)\} ", text, re.MULTILINE)
    }
    assert told == {name: labels for name, labels in real.items() if labels}


def test_every_alert_is_in_the_table_and_no_other() -> None:
    assert set(re.findall(r"^\| `(Fedprikl\w+)`", PAGE, re.MULTILINE)) == {
        rule["alert"] for rule in rules()
    }


def test_files_that_it_links_to_exist() -> None:
    for link in re.findall(r"\]\((\.\./[^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).is_file(), link


def test_the_scrape_is_yaml() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert yaml.safe_load(block)["scrape_configs"][0]["job_name"] == "fedprikl"


def test_the_notification_has_the_fields_of_one() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    real = json.loads(notifications(SCENES["drift"])[-1].to_bytes())
    shown = json.loads(block)
    assert set(shown) == set(real)
    assert set(shown["alarm"]) == set(real["alarm"])
    assert shown["words"] == real["words"]


def test_answers_after_which_it_is_tried_again() -> None:
    (words,) = re.findall(r"After ([\d, ]+), a timeout", PAGE.replace("\n", " "))
    assert {int(code) for code in words.split(", ")} == AGAIN


def test_the_receiver_verifies_what_is_sent_and_nothing_else() -> None:
    (block,) = (each.text for each in code_of("monitoring.md") if "is_genuine" in each.text)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/monitoring.md", "exec"), names)
    is_genuine, text = names["is_genuine"], "a secret of at least 24 bytes"
    sent = notifications(SCENES["drift"])[-1]
    body = sent.to_bytes()

    def headers(at: float) -> dict[str, str]:
        signed = WebhookSecret.from_text(text).signature(
            identity=sent.identity, timestamp=str(int(at)), body=body
        )
        return {
            "webhook-id": sent.identity,
            "webhook-timestamp": str(int(at)),
            "webhook-signature": signed,
        }

    now = time.time()
    assert is_genuine(text.encode(), headers(now), body)
    assert not is_genuine(text.encode(), headers(now), body + b" ")
    assert not is_genuine(b"another secret", headers(now), body)
    assert not is_genuine(text.encode(), headers(now - 3600), body)
    later = headers(now - 3600) | {"webhook-timestamp": str(int(now))}
    assert not is_genuine(text.encode(), later, body)
