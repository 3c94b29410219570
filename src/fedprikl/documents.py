"""Documents as text: JSON that can be hashed and signed, JSON for people, and bytes in JSON."""

import base64
import hashlib
import json
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from fedprikl.errors import InvalidInputError

LARGEST = 2**63  # whole numbers stay below: beyond, not every reader reads the same number


def canonical(content: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """The content as JSON with sorted keys and no spaces; nan and infinity are refused."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def readable(content: dict[str, Any]) -> str:
    """The content as JSON for people, in its own order; nan and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def digest(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """SHA-256 of the canonical content, as hexadecimal digits."""
    return hashlib.sha256(canonical(content)).hexdigest()


def parse_document(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object from outside; anything else is an error that names `what` it should be."""
    try:
        document = json.loads(
            text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once
        )
    except (ValueError, RecursionError):
        raise InvalidInputError(
            f"This {what} is not a whole JSON document: it is damaged, names a field twice, or "
            "holds a number that is not finite."
        ) from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"This is not a {what}.")
    return document


def read_file(path: str | Path, what: str) -> bytes:
    """The content of a file that a user names; `what` it should be."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"Cannot read the {what} {path}: {error.strerror}.") from None


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """What is wrong with a document names its file."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(f"{path}: {error}{_instead(path, str(error))}") from None


def _instead(path: str | Path, error: str) -> str:
    """What a file of another kind is, in a sentence; empty where that is not seen at once."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(1000)
    except OSError:
        return ""
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return " It is a web page: give the .json file that was written with it."
    found = re.search(rb'"format":\s*"fedprikl-([a-z-]+)"', start)
    if found is None or not error.startswith("This is not a"):
        return ""
    return f" It is a {found[1].decode()}."


Step = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of document: its name, its version, and how older documents become today's.

    The version was 1 in fedprikl 1.0, and every step adds one: `steps[0]` makes the content of
    version 2 from that of version 1, and so on. So every version since 1.0 is read.

    >>> def rename(content):
    ...     return {"size": content["length"]}
    >>> cloth = Format("cloth", advice="Weave it again.", steps=(rename,))
    >>> cloth.current({"format": "fedprikl-cloth", "version": 1, "length": 3})
    {'format': 'fedprikl-cloth', 'version': 2, 'size': 3}
    """

    name: str
    advice: str  # what to do with a document that cannot be read
    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        """That is written."""
        return 1 + len(self.steps)

    @property
    def head(self) -> dict[str, Any]:
        """The fields by which a document says what it is."""
        return {"format": f"fedprikl-{self.name}", "version": self.version}

    def current(self, content: dict[str, Any]) -> dict[str, Any]:
        """The content as today's version has it; refuses other kinds, and versions to come."""
        kind, found = content.get("format"), content.get("version")
        if kind == f"fedprikl {self.name}":
            raise InvalidInputError(
                f"This fedprikl {self.name} was made before fedprikl 1.0, by version {found!r:.9} "
                f"of its format. {self.advice}"
            )
        if kind != self.head["format"] or type(found) is not int or found < 1:
            raise InvalidInputError(f"This is not a fedprikl {self.name}.")
        if found > self.version:
            raise InvalidInputError(
                f"This fedprikl {self.name} has version {found}; this software reads versions up "
                f"to {self.version}. Install a newer fedprikl to read it."
            )
        if found == self.version:
            return content
        for step in self.steps[found - 1 :]:
            content = step(content)
        return self.head | {k: v for k, v in content.items() if k not in self.head}


def text_of_bytes(data: bytes) -> str:
    """Bytes as JSON can hold them: base64.

    >>> text_of_bytes(b"seed"), bytes_of_text("c2VlZA==")
    ('c2VlZA==', b'seed')
    """
    return base64.b64encode(data).decode()


def bytes_of_text(text: Any) -> bytes:
    """The inverse of `text_of_bytes`; refuses anything else."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise InvalidInputError("The document is damaged: bytes in it are not base64.") from None


def clean(text: str) -> str:
    r"""The text on one line, in printable characters: nothing in it steers a page or a terminal.

    >>> clean("a\x1b[2Jb\u202ec")
    'a\ufffd[2Jb\ufffdc'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def minute(at: str) -> str:
    """A time to the minute, for people: in UTC, and it says so.

    >>> minute("2027-01-04T13:00:59+01:00")
    '2027-01-04T12:00Z'
    """
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    """1e400 is no number here: it would become an infinity that nobody wrote."""
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose fields have different names: of two readings, none is the signed one."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse("twice")


Typed = TypeVar("Typed")


def read_fields(kind: type[Typed], document: dict[str, Any]) -> Typed:
    """The dataclass `kind` with the fields of a document; each is read as its annotation says.

    Fields of the document that `kind` does not have are passed over. Whoever must know the whole
    document compares it with what the object writes: see `is_same`.

    >>> from dataclasses import make_dataclass
    >>> Pair = make_dataclass("Pair", [("count", int), ("share", float | None)])
    >>> read_fields(Pair, {"count": 2, "share": None})
    Pair(count=2, share=None)
    >>> read_fields(Pair, {"count": True, "share": None})
    Traceback (most recent call last):
    fedprikl.errors.InvalidInputError: The field 'count' must be a whole number.
    """
    found = {}
    for name, read in _readers(kind):  # type: ignore[arg-type]
        try:
            found[name] = read(document[name])
        except KeyError:
            raise InvalidInputError(f"The field {name!r} is missing.") from None
        except _WrongKindError as wanted:
            raise InvalidInputError(f"The field {name!r} must be {wanted}.") from None
    return kind(**found)


def read_exactly(kind: type[Typed], document: dict[str, Any], what: str) -> Typed:
    """The dataclass `kind` that writes exactly this document; `what` names it in errors.

    >>> from dataclasses import make_dataclass
    >>> Pair = make_dataclass("Pair", [("count", int), ("share", float | None)])
    >>> read_exactly(Pair, {"count": 2, "share": None, "more": 1}, "pair")
    Traceback (most recent call last):
    fedprikl.errors.InvalidInputError: The pair has missing or unknown fields: more.
    """
    found = read_fields(kind, document)
    check_written(document, to_plain(found), what)
    return found


def check_written(document: dict[str, Any], written: dict[str, Any], what: str) -> None:
    """Refuses a document that is not what was made of it: it says more, or something else."""
    if document.keys() != written.keys():
        odd = clean(", ".join(sorted(document.keys() ^ written.keys())))
        raise InvalidInputError(f"The {what} has missing or unknown fields: {odd:.80}.")
    for name, value in document.items():
        if not is_same(value, written[name]):
            raise InvalidInputError(
                f"The field {name!r} of the {what} has unknown parts, or words that do not follow "
                "from its numbers."
            )


LEAVES = frozenset({int, float, str, bool, type(None)})


def to_plain(value: Any) -> Any:
    """The value as JSON has it: dataclasses become objects, tuples lists, bytes hexadecimal digits.

    >>> from dataclasses import make_dataclass
    >>> Pair = make_dataclass("Pair", [("count", int), ("share", float | None)])
    >>> to_plain((Pair(2, 0.5), None))
    [{'count': 2, 'share': 0.5}, None]
    """
    if type(value) in LEAVES:  # most values are
        return value
    if is_dataclass(value):
        own = getattr(value, "to_dict", None)
        names = [each.name for each in fields(value) if each.init]
        return own() if own else {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, bytes):
        return value.hex()
    if not isinstance(value, tuple):
        return value
    return list(value) if _is_flat(value) else [to_plain(item) for item in value]


def is_same(one: Any, other: Any) -> bool:
    """Whether two plain values are written in the same way: 1, 1.0 and true are different.

    >>> is_same({"a": [1, 2]}, {"a": [1, 2]}), is_same({"a": 1}, {"a": 1.0})
    (True, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        if _is_flat(one) and _is_flat(other):  # thousands of cells: at once
            return bool(one == other)
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def _is_flat(values: Sequence[Any]) -> bool:
    """Whether all are whole numbers, or there are none."""
    return not values or set(map(type, values)) == {int}


class _WrongKindError(Exception):
    """A value is not what its annotation says."""


Reader = Callable[[Any], Any]


@lru_cache(maxsize=1024)
def _readers(kind: Any) -> tuple[tuple[str, Reader], ...]:
    """How each field is read. Made once: a history of years has many thousand documents."""
    hints = get_type_hints(kind)
    return tuple((each.name, _reader(hints[each.name])) for each in fields(kind) if each.init)


@lru_cache(maxsize=1024)
def _reader(annotation: Any) -> Reader:
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is tuple:
        return _tuple_reader(inner)
    if kind in (Union, types.UnionType):
        return _union_reader(inner)
    if isinstance(annotation, type) and is_dataclass(annotation):
        read = getattr(annotation, "from_dict", None) or partial(read_fields, annotation)
        return lambda value: read(_checked(value, isinstance(value, dict), "an object"))
    if kind is Literal:
        return partial(_literal, inner)
    return SIMPLE.get(annotation, _never)


def _checked(value: Any, proper: bool, wanted: str) -> Any:
    if not proper:
        raise _WrongKindError(wanted)
    return value


def _literal(options: tuple[Any, ...], value: Any) -> Any:
    return _checked(value, value in options, f"one of {', '.join(map(repr, options))}")


def _tuple_reader(inner: tuple[Any, ...]) -> Reader:
    if inner[-1] is Ellipsis:
        each = _reader(inner[0])

        def read_all(value: Any) -> tuple[Any, ...]:
            _checked(value, isinstance(value, list), "a list")
            if each is _int and value and _is_flat(value):
                list(map(each, (min(value), max(value))))  # the others lie between
                return tuple(value)
            return tuple(map(each, value))

        return read_all
    readers = tuple(map(_reader, inner))

    def read(value: Any) -> tuple[Any, ...]:
        fits = isinstance(value, list) and len(value) == len(readers)
        _checked(value, fits, f"a list of {len(readers)}")
        return tuple(one(item) for one, item in zip(readers, value, strict=True))

    return read


def _union_reader(inner: tuple[Any, ...]) -> Reader:
    """Of something or None; of several dataclasses, the one whose `kind` the document names."""
    options = [option for option in inner if option is not type(None)]
    if len(options) == 1:
        some = _reader(options[0])
        return lambda value: None if value is None else some(value)
    kinds = {get_args(get_type_hints(each)["kind"])[0]: _reader(each) for each in options}

    def read(value: Any) -> Any:
        name = value.get("kind") if isinstance(value, dict) else None
        known = isinstance(name, str) and name in kinds
        return kinds[_checked(name, known, f"of a kind {' or '.join(kinds)}")](value)

    return read


def _float(value: Any) -> Any:
    whole = type(value) is int and abs(value) < LARGEST
    proper = whole or (isinstance(value, float) and math.isfinite(value))
    return _checked(value, proper, "a finite number")


def _int(value: Any) -> Any:
    return _checked(value, type(value) is int and 0 <= value < LARGEST, "a whole number")


def _str(value: Any) -> Any:
    return _checked(value, isinstance(value, str), "a text")


def _bool(value: Any) -> Any:
    return _checked(value, isinstance(value, bool), "true or false")


def _bytes(value: Any) -> Any:
    try:
        return bytes.fromhex(_str(value))
    except ValueError:
        raise _WrongKindError("hexadecimal digits") from None


def _never(value: Any) -> Any:
    return _checked(value, proper=False, wanted="of no kind that can be read")


SIMPLE: dict[Any, Reader] = {
    float: _float,
    int: _int,
    str: _str,
    bool: _bool,
    bytes: _bytes,
}
