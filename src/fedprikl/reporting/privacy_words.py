"""What is protected, in three sentences. The privacy statement itself stands folded below."""

import math

from fedprikl.protocol import Release

__all__ = ["privacy_sentences"]

SEEN = {
    "aggregator": "No client's own counts were seen by anybody: they were masked and only their "
    "sums were opened, by the aggregator, which added the noise.",
    "none": "Nobody saw exact numbers, not even sums: every client added noise before its masked "
    "counts left it.",
}
LEFT = {
    "record": "Less hidden are all records of one client together; not hidden are the number of "
    "records and who took part.",
    "client": "Not hidden is who took part.",
}
HIDDEN = {
    "record": "Every single record is hidden by random noise: had any one record been another",
    "client": "Every client is hidden by random noise, with all the records it holds: had all of "
    "one client's records been others",
}


def privacy_sentences(release: Release) -> tuple[str, ...]:
    """Three sentences: what is hidden, who saw what, what is not hidden."""
    return _hidden(release), SEEN[release.trust], LEFT[release.privacy.unit]


def _hidden(release: Release) -> str:
    privacy = release.privacy
    if not privacy.holds or not privacy.claimed_epsilon or not math.isfinite(privacy.epsilon):
        return privacy.verdict
    if privacy.claimed_epsilon > 20:
        return f"Noise was added, but too little to hide much: epsilon {privacy.claimed_epsilon:g}."
    times = math.exp(privacy.claimed_epsilon)
    slack = _chance(privacy.delta) if privacy.delta else ""
    return (
        f"{HIDDEN[privacy.unit]}, no result on this page would be more than {times:.3g} times as "
        f"likely{slack} "
        f"(epsilon {privacy.claimed_epsilon:g})."
    )


def _chance(delta: float) -> str:
    often = f"1 in {1 / delta:,.0f}" if 1e-15 < delta < 0.5 else f"{delta:.2g}"
    return f", plus a chance of at most {often}"
