"""Colours that can be read, light and dark: contrasts are computed from the style sheet."""

import re
from itertools import product

import pytest

from fedprikl.reporting.charts import FILLS
from fedprikl.reporting.html import STYLE

LETTERS, GRAPHICS = 4.5, 3.0  # the least contrasts, as WCAG 2.2 has them
GROUNDS = ("ground", "card")


def schemes() -> dict[str, dict[str, str]]:
    """The colours of each scheme, as a browser reads them; paper is light where it says nothing."""
    blocks = re.findall(r":root \{([^}]*)\}", STYLE)
    light, dark, paper = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in blocks)
    return {"light": light, "dark": dark, "print": light | paper}


def luminance(colour: str) -> float:
    shares = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


def test_black_on_white_has_the_largest_contrast() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < LETTERS < contrast("#767676", "#ffffff")


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_letters_and_bars_stand_out(scheme: str) -> None:
    colours = schemes()[scheme]
    for name, ground in product(("ink", "muted", "bad"), GROUNDS):
        assert contrast(colours[name], colours[ground]) >= LETTERS, (name, ground)
    for name in ("now", "drifted", "reference"):
        assert contrast(colours[name], colours["card"]) >= GRAPHICS, name


def test_bars_can_be_seen_without_a_style_sheet() -> None:
    """A notebook is light or dark, and does not say which."""
    for fill in FILLS.values():
        for colour in re.findall("#[0-9a-f]{6}", fill):
            for ground in ("#ffffff", "#111111"):
                assert contrast(colour, ground) >= GRAPHICS, (fill, ground)


def test_every_colour_of_the_style_has_a_name_in_both_schemes() -> None:
    known = schemes()
    used = set(re.findall(r"var\(--(\w+)", STYLE + " ".join(FILLS.values())))
    assert used <= set(known["light"]) == set(known["dark"])
