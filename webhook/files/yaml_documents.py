"""YAML to values with positions, from the parser's events.

`yaml.compose` would do most of this, but its recursion in C ends the process on deep nesting ("[" a hundred
thousand times), and it forgets the position of an alias. Here nothing nests deeper than MAX_DEPTH, and nothing is built
that an alias could blow up.

Unquoted text means what it does for kubectl and the API server. They use sigs.k8s.io/yaml, which is
go.yaml.in/yaml/v2 followed by a conversion to JSON: YAML 1.1 with the booleans `y`, `no`, `on` ..., Go's number
literals (0o17, 0x1F, 017 is octal, underscores), and no sexagesimal numbers. Source: yaml/v2 resolve.go,
sigs.k8s.io/yaml convertToJSONableObject. A test compares with kubectl itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from webhook.files.spots import Document, Position, Problem, Spot, Step, Unreadable, path_of

Scalar: TypeAlias = "str | int | float | bool | None"

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_NUMBER_STARTS: Final = frozenset("+-0123456789")
_INTEGER: Final = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = range(2**64)
# 64 binary digits, a sign and a prefix fit many times over; more leading zeros than that are no number.
_LONGEST_INTEGER: Final = 512
_PLAIN_FLOATS_BELOW: Final = 1e21
"""Go writes floats below this into JSON without an exponent (encoding/json, floatEncoder)."""


def plain_value(text: str) -> Scalar:
    """Read an unquoted scalar. Times stay text. Infinities and NaN are returned; JSON has neither."""
    if text in _WORDS:
        return _WORDS[text]
    plain = text
    if text[0] in _NUMBER_STARTS:
        plain = text.replace("_", "")
        integer = _integer(plain)
        if integer is not None:
            return integer
    elif text[0] != ".":
        return text
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    return as_json_number(number) if isfinite(number) else text  # Go: out of range, so it stays text


def _integer(plain: str) -> int | None:
    """Read a number as Go's ParseInt and ParseUint with base 0; None where they fail."""
    match = _INTEGER.fullmatch(plain)
    if match is None or len(plain) > _LONGEST_INTEGER:
        return None
    sign, digits = match.groups()
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        digits = f"0o{digits[1:]}"
    number = int(digits, 0)
    if sign == "-":
        number = -number
    # ParseUint takes no sign
    return number if number in _INT64 or (not sign and number in _UINT64) else None


def as_json_number(number: float) -> int | float:
    """Return the number as Go writes it into JSON: 1.0 and 1e3 arrive as the integers 1 and 1000."""
    if number.is_integer() and abs(number) < _PLAIN_FLOATS_BELOW:
        return int(Decimal(repr(number)))  # by its shortest digits, as Go writes it
    return number


def key_text(value: Scalar) -> str | None:
    """Return a map key as JSON shows it, or None where the conversion fails or would mangle it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value in _INT64:
        return str(value)
    return None


class YamlSpot(Spot):
    """The position of a value: marks from the parser, children by key or by index."""

    __slots__ = ("_base", "_children", "_mark", "key_mark")

    def __init__(self, base: int, mark: Any, children: dict[str, YamlSpot] | list[YamlSpot] | None = None) -> None:
        self._base = base
        self._mark = mark
        self.key_mark: Any = None
        self._children = children

    @property
    def position(self) -> Position:
        """Of the value."""
        return Position(self._base + self._mark.line, self._mark.column + 1)

    @property
    def key_position(self) -> Position | None:
        """Of the key before it."""
        mark = self.key_mark
        return None if mark is None else Position(self._base + mark.line, mark.column + 1)

    def child(self, step: Step) -> YamlSpot | None:
        """Return the spot one step below."""
        children = self._children
        if isinstance(children, dict):
            return children.get(step) if isinstance(step, str) else None
        if children and isinstance(step, int) and 0 <= step < len(children):
            return children[step]
        return None

    def steps(self) -> Iterable[Step]:
        """Return all steps below."""
        children = self._children
        return children.keys() if isinstance(children, dict) else range(len(children or ()))

    def again_at(self, mark: Any) -> YamlSpot:
        """Return the spot of an alias to this: the same below, at another mark."""
        return YamlSpot(self._base, mark, self._children)

    def entries(self) -> dict[str, YamlSpot]:
        """Return the children of a mapping."""
        return self._children if isinstance(self._children, dict) else {}


class PlainSpot(YamlSpot):
    """The position of a number, a boolean or null, and its text."""

    __slots__ = ("plain",)

    def __init__(self, base: int, mark: Any, plain: str | None) -> None:
        super().__init__(base, mark)
        self.plain = plain

    def again_at(self, mark: Any) -> YamlSpot:
        """Return the same at another mark."""
        return PlainSpot(self._base, mark, self.plain)


class LiteralSpot(YamlSpot):
    """The position of a literal block (`|`), and its lines."""

    __slots__ = ("_source", "_value")

    def __init__(self, base: int, mark: Any, source: str, value: str) -> None:
        """`source` is the text that was parsed, whose first line is number `base` of the file."""
        super().__init__(base, mark)
        self._source = source
        self._value = value

    @property
    def text_start(self) -> Position | None:
        """The line after the `|`, and the column behind the indent."""
        lines = self._source.split("\n")[self._mark.line + 1 :]
        for line, kept in zip(lines, self._value.split("\n"), strict=False):
            if kept.strip():
                indent = len(line.rstrip("\r")) - len(kept)
                return Position(self._base + self._mark.line + 1, indent + 1)
        return None


MAX_DEPTH: Final = 100
"""No Kubernetes object nests half as deep."""
MAX_ALIASED: Final = 100_000
"""How many values (keys too) of one document may come from aliases."""
_CONTAINERS: Final = (dict, list)
_DIRECTIVES_MAX: Final = 16
"""The C library compares each directive with all before it, in one call."""
_CORE: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_CANNOT_START: Final = "found character that cannot start any token"
_MAX_REMARKS: Final = 100
_OCTAL: Final = re.compile(r"[+-]?0[0-7_]*[1-7][0-7_]*")
_TAG_DIRECTIVE: Final = re.compile("(?:\\A|[\r\n\x85\u2028\u2029\ufeff])%TAG")
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


class PythonParser(Reader, Scanner, Parser):
    """PyYAML's parser without its C library."""

    def __init__(self, stream: str) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)


def _fastest_parser() -> Callable[[str], Any]:
    try:
        from yaml._yaml import CParser  # noqa: PLC0415 -- not every build of PyYAML has it, nor a public name
    except ImportError:
        return PythonParser
    return CParser


EVENTS: Final = _fastest_parser()


def yaml_documents(text: str, first_line: int = 1, parser: Callable[[str], Any] | None = None) -> Iterator[Document]:
    """Yield all documents but empty ones; line 1 is `first_line` of the file. Raises Unreadable, also if forbidden."""
    for number, directive in enumerate(_TAG_DIRECTIVE.finditer(text)):
        if number == _DIRECTIVES_MAX:
            at = Position(first_line + text.count("\n", 0, directive.end()), 1)
            raise Unreadable(f"not YAML for a manifest: more than {_DIRECTIVES_MAX} lines begin with %TAG", at)
    try:
        yield from _Builder((parser or EVENTS)(text), first_line, text).documents()
    except yaml.MarkedYAMLError as error:
        words = " ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        at = Position(first_line + mark.line, mark.column + 1) if mark else Position(first_line, 1)
        if error.problem == _CANNOT_START and _character(text, at, first_line) == "\t":
            words = "a tab stands where YAML allows only spaces; indent with spaces"
        elif _character(text, at._replace(column=at.column - 1), first_line) == "\ufeff":
            words = "a byte order mark stands inside a document; join files with a line of --- between them"
        raise Unreadable(f"not YAML: {words}", at) from None
    except ReaderError as error:
        before = text[: error.position]
        if error.encoding != "unicode":  # the C library counts in bytes
            before = text.encode()[: error.position].decode(errors="ignore")
        at = Position(first_line + before.count("\n"), len(before) - before.rfind("\n"))
        raise Unreadable(f"not YAML: {error.reason}", at) from None


def _character(text: str, at: Position, first_line: int) -> str:
    lines = text.split("\n", at.line - first_line + 1)
    line = lines[at.line - first_line] if at.line - first_line < len(lines) else ""
    return line[at.column - 1 : at.column]


def too_deep(position: Position) -> Unreadable:
    """Return the fault of a document that nests too deep."""
    return Unreadable(f"nested more than {MAX_DEPTH} levels deep", position)


def check_depth(value: Any, position: Position) -> None:
    """Raise Unreadable if a value nests deeper than MAX_DEPTH."""
    level = [value] if value.__class__ in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [
            below
            for container in level
            for below in (container.values() if container.__class__ is dict else container)
            if below.__class__ in _CONTAINERS
        ]
    if level:
        raise too_deep(position)


class _Anchor:
    """The value of an alias. `size` is None while the anchored value is still being read."""

    value: Any = None
    spot: YamlSpot | None = None
    size: int | None = None


class _Builder:
    """Values from events, one document at a time."""

    def __init__(self, parser: Any, base: int, source: str) -> None:
        self._next: Callable[[], Any] = parser.get_event
        self._base = base
        self._source = source

    def _start_document(self) -> None:
        self._anchors: dict[str, _Anchor] = {}
        self._problems: list[Problem] = []
        self._remarks: list[Problem] = []
        self._steps: list[Step] = []
        self._size = 0
        self._aliased = 0

    def documents(self) -> Iterator[Document]:
        """Yield every document that is not empty."""
        while (event := self._next()).__class__ is not StreamEndEvent:
            if event.__class__ is not DocumentStartEvent:
                continue
            self._start_document()
            value, spot = self._node(self._next())
            if value is not None:
                if self._aliased:  # each alias brings its own levels
                    check_depth(value, spot.position)
                yield Document(value, spot, tuple(self._problems), tuple(self._remarks))

    def _node(self, event: Any) -> tuple[Any, YamlSpot]:
        before = self._size
        self._size += 1
        kind = event.__class__
        if kind is AliasEvent:
            return self._alias(event)
        anchor = None
        if event.anchor is not None:
            anchor = self._anchors[event.anchor] = _Anchor()
        value: Any
        if kind is ScalarEvent:
            value = self._scalar(event)
            spot = self._scalar_spot(event, value)
        else:
            if event.tag not in (None, "!", _CORE + ("map" if kind is MappingStartEvent else "seq")):
                self._refuse(event, f"tag {_short(event.tag)} is not allowed in a manifest")
            if len(self._steps) >= MAX_DEPTH:
                self._refuse(event, f"nested more than {MAX_DEPTH} levels deep")
            value, spot = self._mapping(event) if kind is MappingStartEvent else self._sequence(event)
        if anchor is not None:
            anchor.value, anchor.spot, anchor.size = value, spot, self._size - before
        return value, spot

    def _scalar(self, event: Any) -> Scalar:
        tag = event.tag
        if tag is None:
            value = plain_value(event.value) if event.implicit[0] else event.value
        else:
            value = self._tagged(event, tag)
        if value.__class__ is str and not value.isascii() and _HALF_PAIR.search(value):
            self._refuse(event, "half a surrogate pair is not a character")  # PyYAML without its C library reads it
        if value.__class__ is float and not isfinite(value):
            self._refuse(event, f"{event.value} cannot be written in JSON, which the API server reads")
        return value

    def _scalar_spot(self, event: Any, value: Scalar) -> YamlSpot:
        if event.style == "|":
            return LiteralSpot(self._base, event.start_mark, self._source, event.value)
        if value.__class__ is not str and event.tag is None:
            if value.__class__ is int and _OCTAL.fullmatch(event.value):
                text = f'YAML reads {event.value} as octal: write {value}, or "{event.value}" if it is text'
                self._remark(event, text)
            return PlainSpot(self._base, event.start_mark, event.value)
        return YamlSpot(self._base, event.start_mark)

    def _tagged(self, event: Any, tag: str) -> Scalar:
        """Allow tags of JSON's own types where they say what is true; `!!str` is the usual one."""
        text: str = event.value
        if tag in ("!", _CORE + "str"):
            return text
        if tag not in _TYPES:
            self._refuse(event, f"tag {_short(tag)} is not allowed in a manifest")
        value = plain_value(text)
        if value.__class__ not in _TYPES[tag]:
            self._refuse(event, f"cannot read {text!r} as {_short(tag)}")
        return value

    def _alias(self, event: Any) -> tuple[Any, YamlSpot]:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            self._refuse(event, f"alias *{event.anchor} has no anchor before it")
        if anchor.size is None or anchor.spot is None:
            self._refuse(event, f"anchor &{event.anchor} contains itself")
        self._size += anchor.size
        self._aliased += anchor.size
        if self._aliased > MAX_ALIASED:
            self._refuse(event, f"aliases stand for more than {MAX_ALIASED} values")
        return anchor.value, anchor.spot.again_at(event.start_mark)

    def _sequence(self, start: Any) -> tuple[list[Any], YamlSpot]:
        values: list[Any] = []
        spots: list[YamlSpot] = []
        steps = self._steps
        while (event := self._next()).__class__ is not SequenceEndEvent:
            steps.append(len(values))
            value, spot = self._node(event)
            steps.pop()
            values.append(value)
            spots.append(spot)
        return values, YamlSpot(self._base, start.start_mark, spots)

    def _mapping(self, start: Any) -> tuple[dict[str, Any], YamlSpot]:
        values: dict[str, Any] = {}
        spots: dict[str, YamlSpot] = {}
        merged: set[str] = set()
        steps = self._steps
        while (event := self._next()).__class__ is not MappingEndEvent:
            unquoted = event.__class__ is ScalarEvent and (event.implicit[0] or event.tag == f"{_CORE}merge")
            if unquoted and event.value == _MERGE:
                self._merge(event, values, spots, merged)
                continue
            key = self._key(event)
            steps.append(key)
            if key in values and key not in merged:
                first = (spots[key].key_position or spots[key].position).line
                self._complain(event, f'duplicate key "{key}", already on line {first}; the last one counts')
            value, spot = self._node(self._next())
            steps.pop()
            spot.key_mark = event.start_mark
            values[key], spots[key] = value, spot
            merged.discard(key)
        return values, YamlSpot(self._base, start.start_mark, spots)

    def _key(self, event: Any) -> str:
        if event.__class__ not in (ScalarEvent, AliasEvent):
            self._refuse(event, "a key must be text, not a map or a list")
        value, _ = self._node(event)
        key = key_text(value) if not isinstance(value, dict | list) else None
        if key is None:
            self._refuse(event, "a key must be text; put it in quotes")
        if value.__class__ is bool and event.__class__ is ScalarEvent and event.value != key:
            self._remark(event, f'YAML reads the key {event.value} as {key}: write "{event.value}" in quotes', key)
        return key

    def _merge(self, event: Any, values: dict[str, Any], spots: dict[str, YamlSpot], merged: set[str]) -> None:
        """Read the value of `<<`. As in kubectl, merged keys also overwrite those before it."""
        self._steps.append(_MERGE)
        value, spot = self._node(self._next())
        self._steps.pop()
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            self._refuse(event, "<< must name a map, or a list of maps")
        places = [spot.child(index) for index in range(len(sources))] if isinstance(value, list) else [spot]
        for source, place in zip(reversed(sources), reversed(places), strict=True):  # earlier ones win
            for key, entry in source.items():
                if key in values and key not in merged:
                    self._complain(event, f'duplicate key "{key}": << replaces the value before it', key)
                values[key] = entry
                merged.add(key)
            if place is not None:
                spots.update(place.entries())

    def _complain(self, event: Any, message: str, *below: Step) -> None:
        self._problems.append(Problem((*self._steps, *below), self._position(event), message))

    def _remark(self, event: Any, message: str, *below: Step) -> None:
        if len(self._remarks) < _MAX_REMARKS:
            self._remarks.append(Problem((*self._steps, *below), self._position(event), message))

    def _refuse(self, event: Any, message: str) -> NoReturn:
        path = path_of(self._steps).written
        raise Unreadable(f"{path}: {message}" if path else message, self._position(event))

    def _position(self, event: Any) -> Position:
        return Position(self._base + event.start_mark.line, event.start_mark.column + 1)


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{_CORE}int": (int,),
    f"{_CORE}float": (float, int),
    f"{_CORE}bool": (bool,),
    f"{_CORE}null": (type(None),),
}


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
