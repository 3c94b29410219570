"""Mutants are small mistakes in what is computed, and the same ones for the same seed."""

import ast
import json

from tests.mutants.run import CORE, REASONS, ROOT
from tests.mutants.sampling import mutants, sample

SOURCE = '''
def kept(values: list[int], limit: int = 3) -> int:
    """At most 9 of them."""
    if not values or max(values) > limit:
        raise ValueError(f"More than {limit + 1}.")
    return sum(values) + 1
'''


def test_every_kind_of_mistake_is_made_once() -> None:
    assert [(each.line, each.before, each.after) for each in mutants(SOURCE)] == [
        (2, "3", "(4)"),
        (4, "max", "(min)"),
        (4, "max(values) > limit", "(max(values) >= limit)"),
        (4, "max(values) > limit", "(not max(values) > limit)"),
        (4, "not values", "(not not values)"),
        (4, "not values", "(values)"),
        (4, "not values or max(values) > limit", "(not values and max(values) > limit)"),
        (5, "raise ValueError(f'More than {limit + 1}.')", "pass"),
        (6, "1", "(2)"),
        (6, "return sum(values) + 1", "return None"),
        (6, "sum(values) + 1", "(sum(values) - 1)"),
    ]


def test_samples_are_the_same_for_the_same_seed() -> None:
    chosen = sample(SOURCE, 5, "a")
    assert chosen == sample(SOURCE, 5, "a") != sample(SOURCE, 5, "b")
    assert len(chosen) == 5
    assert len(sample(SOURCE, 99, "a")) == 11


def test_the_core_has_tests_and_reasons_are_about_what_is_there() -> None:
    for module, tests in CORE.items():
        assert tests
        for name in tests:
            assert (ROOT / "tests" / f"{name}.py").exists(), name
        source = (ROOT / "src" / "fedprikl" / module).read_text()
        every = mutants(source)
        reasons = json.loads(REASONS.read_text()).get(module, {})
        assert reasons.keys() <= {mutant.name for mutant in every}, module
        assert ast.dump(ast.parse(every[0].text)) != ast.dump(ast.parse(source))
