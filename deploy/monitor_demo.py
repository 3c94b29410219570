"""`make monitor-demo`: two years of weekly releases on made-up flights, in two minutes.

Six clients write down their flights week by week. The monitor is called once a week; from week
60 on, one carrier takes over flights of another, and delays grow a little. The page is served from
the first week, its address is printed, and everything ends by itself.
"""

import csv
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from rich.progress import Progress

import fedprikl as fk
from fedprikl.dashboard.app import LOOPBACK, dashboard
from fedprikl.deployment.web import serving
from fedprikl.front.series import HistorySource, read_status
from fedprikl.monitoring.status import SeriesStatus, headline
from fedprikl.protocol import SignedPlan

WEEKS, BEGINS = 104, 60
CLIENTS, FLIGHTS = 6, 160  # flights of a client in a week
FIRST = datetime(2027, 1, 4, tzinfo=UTC)
COLUMNS = ("departed_at", "carrier", "departure_delay", "distance")
CARRIERS = ("Kestrel", "Heron", "Osprey", "Swift")
BEFORE, AFTER = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.3, 0.4, 0.2, 0.1])
PLANTED = {"carrier", "departure_delay"}  # columns that drift
SHOWN = 5.0  # seconds that the page stays after the last week


def main() -> int:
    """Runs the demo; 0 if the drift was found and no alarm was raised before it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedprikl-") as name:
        status = _two_years(Path(name), np.random.default_rng())
    return _judge(status, time.monotonic() - began)


def _two_years(folder: Path, rng: np.random.Generator) -> SeriesStatus:
    clients = folder / "clients"
    clients.mkdir()
    _write(folder / "public.csv", _flights(rng, 30_000, FIRST - timedelta(weeks=52), drifted=False))
    reference = fk.fit_reference(folder / "public.csv", columns=COLUMNS[1:], bins=4)
    weeks = fk.Series(
        every="week", first=f"{FIRST:%Y-%m-%d}", periods=WEEKS, time_column="departed_at"
    )
    planned = fk.plan(
        reference,
        clients=CLIENTS,
        records=CLIENTS * FLIGHTS,
        epsilon=1,
        ask=("kl", "columns"),
        population="flights",
        design_effect=1.0,
        series=weeks,
    )
    plan, key = SignedPlan(planned.plan), fk.SigningKey.generate()
    history, ledger = folder / "history.db", folder / "ledger.db"
    source = HistorySource(history, ledger, plan)
    with serving(dashboard(source, hosts=LOOPBACK, seconds=0.5)) as address, Progress() as shown:
        shown.console.print(f"the page: {address}")
        task = shown.add_task("weeks", total=WEEKS)
        for week in range(WEEKS):
            start = FIRST + timedelta(weeks=week)
            for number in range(CLIENTS):
                flights = _flights(rng, FLIGHTS, start, drifted=week >= BEGINS)
                _write(clients / f"site {number:02}.csv", flights)
            status = fk.monitor(
                reference,
                clients,
                plan,
                history=history,
                ledger=ledger,
                key=key,
                at=(start + timedelta(days=7, hours=6)).isoformat(),
            )
            shown.update(task, advance=1, description=headline(status))
        shown.console.print(f"the page stays for {SHOWN:g} seconds: {address}")
        time.sleep(SHOWN)
    return read_status(history, at=status.at)


def _flights(
    rng: np.random.Generator, number: int, start: datetime, *, drifted: bool
) -> list[tuple[str, str, str, str]]:
    """Flights of one week, or of the year before, as they stand in a file."""
    span = timedelta(days=364 if number > 10 * FLIGHTS else 7)
    seconds = rng.integers(0, int(span.total_seconds()), number).tolist()
    carriers = rng.choice(CARRIERS, number, p=AFTER if drifted else BEFORE).tolist()
    delays = rng.gamma(2.0, 11.0 if drifted else 10.0, number).round().tolist()
    distances = rng.normal(900, 250, number).round(-1).tolist()
    return [
        (f"{start + timedelta(seconds=at):%Y-%m-%dT%H:%M:%S}", carrier, f"{delay:g}", f"{far:g}")
        for at, carrier, delay, far in zip(seconds, carriers, delays, distances, strict=True)
    ]


def _write(path: Path, flights: list[tuple[str, str, str, str]]) -> None:
    """Appends to a client's file; a new one gets the names of the columns."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        writer.writerows(flights)


def _judge(status: SeriesStatus, seconds: float) -> int:
    raised = [alarm.raised for alarm in status.alarms]
    early = [week for week in raised if week < BEGINS]
    found = [alarm for alarm in status.alarms if alarm.raised >= BEGINS]
    print(f"{len(status.released)} weeks in {seconds:.0f} seconds. {headline(status)}")
    print(
        f"\nHow right it was\nplanted: from week {BEGINS} on, Heron has 40% of the flights instead "
        "of 30%, Kestrel 30% instead of 40%; delays are a tenth longer; distances as they were"
    )
    if found:
        first, named = found[0], {column for alarm in found for column in alarm.columns}
        print(
            f"found: the alarm came in week {first.raised}, {first.raised - BEGINS} weeks later; "
            f"it says since week {first.since}"
        )
        print(
            f"columns of all alarms since: {', '.join(sorted(named)) or 'none'}. "
            f"Right: {len(named & PLANTED)} of {len(PLANTED)}. Wrong: {len(named - PLANTED)}"
        )
    else:
        print("found: nothing, which is wrong")
    print(f"false alarms before week {BEGINS}: {len(early)} in {BEGINS} weeks")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
