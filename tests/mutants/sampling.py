"""Mutants: a module with one small mistake in it, drawn at random.

A mistake is put into the text where its part of the syntax tree stands, so that all else, also line
numbers, stays as it is. Words (messages, docstrings, annotations, `repr`) are left alone.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
WORDS = ("__repr__", "__str__", "__rich__", "_repr_html_")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: where, what it replaces, and by what."""

    line: int
    within: str  # the text of that line
    before: str
    after: str
    text: str  # of the whole module with the mistake

    @property
    def name(self) -> str:
        """By which a reason knows it, wherever its line moves to."""
        return f"{self.within}: {self.before} -> {self.after}"


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, data, lines = {}, source.encode(), source.splitlines()
    for node, changed in _changes(ast.parse(source)):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        after = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
        text = (data[:first] + after.encode() + data[last:]).decode()
        before = ast.unparse(node)
        if before not in (after, after[1:-1]):
            found[text] = Mutant(node.lineno, lines[node.lineno - 1].strip(), before, after, text)
    return sorted(found.values(), key=lambda each: (each.line, each.name))


def sample(source: str, size: int, seed: str) -> list[Mutant]:
    """Some of the mutants of a module, spread over all of it."""
    every = mutants(source)
    chosen = random.Random(seed).sample(every, min(size, len(every)))  # noqa: S311
    return sorted(chosen, key=lambda each: (each.line, each.name))


Change = tuple[ast.expr | ast.stmt, ast.AST | str]


def _changes(tree: ast.AST) -> Iterator[Change]:
    for node in _code(tree):
        for kind in (_operators, _constants, _conditions, _statements):
            yield from kind(node)


def _operators(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield node, ast.Compare(left, [_swap(operator)], [right])
        case ast.BinOp(left, operator, right) if not _is_text(left) and not _is_text(right):
            yield node, ast.BinOp(left, _swap(operator), right)
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield node, operand
        case ast.Call(ast.Name(name) as called) if name in CALLED:
            yield called, ast.Name(CALLED[name])
        case ast.Call(ast.Attribute(value, name) as called) if name in CALLED:
            yield called, ast.Attribute(value, CALLED[name])


def _constants(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Constant(bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(int(value)):
            yield node, ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield node, ast.Constant(value * 2 if value else 1.0)


def _conditions(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BoolOp(operator, values):
            yield node, ast.BoolOp(_swap(operator), values)
            for value in values:
                yield value, ast.UnaryOp(ast.Not(), value)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.If(test) | ast.IfExp(test) if not isinstance(test, ast.BoolOp):
            yield test, ast.UnaryOp(ast.Not(), test)


def _statements(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Raise() | ast.Expr(ast.Call()):
            yield node, "pass"
        case ast.Return(ast.expr()):
            yield node, "return None"
        case ast.AugAssign(target, operator, value):
            yield node, ast.unparse(ast.AugAssign(target, _swap(operator), value))


def _swap(operator: Any) -> Any:
    return SWAPPED.get(type(operator), type(operator))()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that compute something: no words and no annotations."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, ast.AST) or isinstance(each, ast.JoinedStr | ast.Import):
                continue
            if isinstance(each, ast.FunctionDef) and each.name in WORDS:
                continue
            yield each
            if not isinstance(each, ast.Raise):  # what an error says is words
                yield from _code(each)
