"""The formats with their versions."""

from fedprikl.deployment import provisioning, reporter
from fedprikl.deployment.site_log import SITE_LOG
from fedprikl.deployment.site_memory import SITE_MEMORY
from fedprikl.monitoring.counted_records import REGISTRY
from fedprikl.monitoring.history import HISTORY
from fedprikl.privacy.account import LEDGER
from fedprikl.protocol import noised_round, plan, release, report
from fedprikl.reference import files
from fedprikl.secure_sum import messages

DOCUMENTS = (
    plan.FORMAT,
    release.FORMAT,
    files.FORMAT,
    noised_round.FORMAT,
    provisioning.FORMAT,
    reporter.FORMAT,
)
STORES = (LEDGER, HISTORY, REGISTRY, SITE_MEMORY, SITE_LOG)


def format_versions() -> str:
    """A table of all formats."""
    rows = [f"| {each.name} | `{each.head['format']}` | {each.version} |" for each in DOCUMENTS]
    rows += [
        f"| {each.name} | `{_letters(each.application)}` | {each.version} |" for each in STORES
    ]
    rows.append(f"| messages of a secure sum | `FSS` | {messages.VERSION} |")
    rows.append(f"| messages of a report to three servers | `FPR` | {report.VERSION} |")
    return "\n".join(["| format | is named | version |", "| --- | --- | --- |", *rows])


def _letters(number: int) -> str:
    return number.to_bytes(4).decode()
