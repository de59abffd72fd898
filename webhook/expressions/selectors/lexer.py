"""The words of a selector. Source: cel-go parser/gen/CEL.g4, parser/unescape.go.

Not celpy's grammar, which policies use: it has no `.?` and `[?`, no trailing commas and no quoted names, and it takes
texts, numbers and signs that the API server refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from webhook.expressions.selectors.faults import SelectorError

_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
# Each character can be read in one way only, so that time is in proportion to the text.
_LONG: Final = rf"QQQ(?:[^\\]|{_ESCAPE})*?QQQ"
_SHORT: Final = rf"Q(?:[^\\Q\n\r]|{_ESCAPE})*Q"
_RAW: Final = r"[rR](?:QQQ[\s\S]*?QQQ|Q[^Q\n\r]*Q)"
_TEXT: Final = "|".join(pattern.replace("Q", quote) for pattern in (_RAW, _LONG, _SHORT) for quote in "'\"")
_NUMBER: Final = (
    r"(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
)
_WORD: Final = re.compile(
    r"(?P<blank>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<bytes>[bB](?:{_TEXT}))|(?P<text>{_TEXT})|{_NUMBER}"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[-\[\](){}.,!?:+*/%<>])"
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_SIMPLE: Final = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_MAX_INT: Final = 2**63
_MAX_UINT: Final = 2**64
_DIGITS_MAX: Final = 20
"""Of 64 bits."""


class Lexeme(NamedTuple):
    """One word. `sort` is sign, name, quoted, int, uint, double, text, bytes, constant or end; `at` its position."""

    sort: str
    text: str
    at: int


def words_of(source: str) -> list[Lexeme]:
    """All words, and one for the end. Raises SelectorError."""
    found, position = [], 0
    while position < len(source):
        match = _WORD.match(source, position)
        if match is None:
            raise SelectorError.invalid(f"Syntax error: token recognition error {place(source, position)}")
        sort, text = str(match.lastgroup), match.group()
        if sort == "name" and text in _CONSTANTS:
            sort = "constant"
        elif sort == "name" and text == "in":
            sort = "sign"
        if sort != "blank":
            found.append(Lexeme(sort, text, position))
        position = match.end()
    return [*found, Lexeme("end", "<EOF>", len(source))]


def place(source: str, position: int) -> str:
    """Where something is, for people."""
    before = source[:position]
    return f"at line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}"


def value_of(word: Lexeme, *, negative: bool = False) -> Any:
    """What a literal stands for, as in `values`. Raises SelectorError."""
    match word.sort:
        case "constant":
            return _CONSTANTS[word.text]
        case "int":
            return _whole(word.text, "int", -_MAX_INT, _MAX_INT, negative=negative)
        case "uint":
            from webhook.expressions.selectors.values import UInt  # noqa: PLC0415 -- only where there is one

            return UInt(_whole(word.text[:-1], "uint", 0, _MAX_UINT))
        case "double":
            value = float(word.text)
            if value == float("inf"):
                raise SelectorError.invalid("invalid double literal")
            return -value if negative else value
        case "bytes":
            return _unescaped(word.text[1:], _byte).encode("latin-1")
        case _:
            return _unescaped(word.text, _character)


def _whole(text: str, kind: str, least: int, beyond: int, *, negative: bool = False) -> int:
    value = beyond
    digits = text.removeprefix("0x").lstrip("0") or "0"
    if len(digits) <= _DIGITS_MAX:
        value = int(digits, 16 if text.startswith("0x") else 10) * (-1 if negative else 1)
    if not least <= value < beyond:
        raise SelectorError.invalid(f"invalid {kind} literal")
    return value


def _unescaped(text: str, decoded: Callable[[str], str]) -> str:
    raw = text[0] in "rR"
    text = text.removeprefix(text[0]) if raw else text
    inner = text[3:-3] if text[:3] in {'"""', "'''"} and len(text) >= 6 else text[1:-1]
    if decoded is _byte:
        # Other characters than those that are escaped stand for their UTF-8.
        parts = [inner] if raw else re.split(f"({_ESCAPE})", inner)
        return "".join(
            decoded(part) if position % 2 else part.encode("utf-8", "replace").decode("latin-1")
            for position, part in enumerate(parts)
        )
    return inner if raw else re.sub(_ESCAPE, lambda match: decoded(match.group()), inner)


def _code(escape: str) -> int:
    if escape[1].isdigit():
        return int(escape[1:], 8)
    if len(escape) > 2:
        return int.from_bytes(bytes.fromhex(escape[2:]))
    return ord(_SIMPLE.get(escape[1], escape[1]))


def _character(escape: str) -> str:
    code = _code(escape)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise SelectorError.invalid("invalid unicode code point")
    return chr(code)


def _byte(escape: str) -> str:
    if escape[1] in "uU":
        raise SelectorError.invalid("unable to unescape string")
    return chr(_code(escape))
