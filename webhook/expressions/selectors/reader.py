"""A selector's text as words, and as a tree. Source: cel-go parser/gen/CEL.g4, parser/unescape.go, parser/parser.go.

Not celpy's grammar, which policies use: it has no `.?` and `[?`, no trailing commas and no quoted names, and it takes
texts, numbers and signs that the API server refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.macros import COPIES_MAX, expanded
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, MapOf, Message, Node, walk
from webhook.expressions.selectors.values import MAX_UINT, UInt
from webhook.expressions.values import MAX_INT, MIN_INT

MAX_DEPTH: Final = 48
"""How deep a selector may nest; the API server allows 250. Chains of `&&` or `||` cost no depth."""
MAX_HEIGHT: Final = 96
"""Levels of the tree, those that macros add included. Everything after this recurses."""
MAX_PARTS: Final = 12_000
"""Nodes of the tree, those that macros add included. Those of 10 KiB take 0.2 s."""
_RELATIONS: Final = frozenset({"<", "<=", ">", ">=", "==", "!=", "in"})
_SUMS: Final = frozenset({"+", "-"})
_PRODUCTS: Final = frozenset({"*", "/", "%"})
_LITERALS: Final = frozenset({"constant", "int", "uint", "double", "text", "bytes"})
_COPYING: Final = frozenset({"optMap", "optFlatMap"})
_RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while",
})  # fmt: skip


def read_selector(source: str) -> Node:
    """The tree of an expression. Raises SelectorError."""
    reader = _Reader(source)
    if sum(word.text in _COPYING for word in reader.words) > COPIES_MAX:
        raise SelectorError.unsupported(f"more than {COPIES_MAX} of {' and '.join(sorted(_COPYING))}")
    if reader.word.sort == "end":
        raise SelectorError.invalid("the expression is empty")
    node = reader.expression()
    reader.expect("<EOF>")
    depths = [depth for _, depth in walk(node)]
    if max(depths) > MAX_HEIGHT:
        raise SelectorError.unsupported(f"a tree of more than {MAX_HEIGHT} levels")
    if len(depths) > MAX_PARTS:
        raise SelectorError.unsupported(f"a tree of more than {MAX_PARTS} parts")
    return node


class _Reader:
    """Recursive descent, one method a level of the grammar."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.words = _words(source)
        self.next = 0
        self.depth = 0

    # --- words --------------------------------------------------------------------------------------

    @property
    def word(self) -> _Word:
        return self.words[self.next]

    def take(self) -> _Word:
        word = self.words[self.next]
        self.next += word.sort != "end"
        return word

    def taken(self, sign: str) -> bool:
        """Whether the next word is this sign; it is taken then."""
        found = self.word.sort == "sign" and self.word.text == sign
        self.next += found
        return found

    def expect(self, sign: str) -> None:
        if sign == "<EOF>" and self.word.sort == "end":
            return
        if not self.taken(sign):
            raise self.unexpected(sign)

    def unexpected(self, wanted: str) -> SelectorError:
        where = _place(self.source, self.word.at)
        return SelectorError.invalid(f"Syntax error: mismatched input '{self.word.text}' expecting {wanted} {where}")

    # --- levels -------------------------------------------------------------------------------------

    def expression(self) -> Node:
        self.deeper()
        condition = self.alternative()
        if self.taken("?"):
            then = self.alternative()
            self.expect(":")
            condition = Invocation(function="_?_:_", arguments=[condition, then, self.expression()])
        self.depth -= 1
        return condition

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SelectorError.unsupported(f"nested more than {MAX_DEPTH} deep")

    def alternative(self) -> Node:
        operands = [self.conjunction()]
        while self.taken("||"):
            operands.append(self.conjunction())
        return operands[0] if len(operands) == 1 else Invocation(function="_||_", arguments=operands)

    def conjunction(self) -> Node:
        operands = [self.relation()]
        while self.taken("&&"):
            operands.append(self.relation())
        return operands[0] if len(operands) == 1 else Invocation(function="_&&_", arguments=operands)

    def relation(self) -> Node:
        return self.chain(self.total, _RELATIONS)

    def total(self) -> Node:
        return self.chain(self.product, _SUMS)

    def product(self) -> Node:
        return self.chain(self.unary, _PRODUCTS)

    def chain(self, operand: Callable[[], Node], operators: frozenset[str]) -> Node:
        """Operators of one rank, from the left."""
        left, before = operand(), self.depth
        while self.word.sort == "sign" and self.word.text in operators:
            self.deeper()
            operator = self.take().text
            function = "@in" if operator == "in" else f"_{operator}_"
            left = Invocation(function=function, arguments=[left, operand()])
        self.depth = before
        return left

    def unary(self) -> Node:
        for sign, function in (("!", "!_"), ("-", "-_")):
            count = 0
            while self.taken(sign):
                count += 1
            if not count:
                continue
            if sign == "-" and count == 1 and self.word.sort in {"int", "double"}:
                return self.members(Constant(value=_value(self.take(), negative=True)))
            member = self.member()
            return Invocation(function=function, arguments=[member]) if count % 2 else member
        return self.member()

    def member(self) -> Node:
        return self.members(self.primary())

    def members(self, node: Node) -> Node:
        """The fields, methods and entries that follow."""
        before = self.depth
        while True:
            if self.taken("."):
                self.deeper()
                node = self.field(node)
            elif self.taken("["):
                self.deeper()
                function = "_[?_]" if self.taken("?") else "_[_]"
                node = Invocation(function=function, arguments=[node, self.expression()])
                self.expect("]")
            else:
                self.depth = before
                return node

    def field(self, operand: Node) -> Node:
        optional = self.taken("?")
        word = self.take()
        if word.sort not in {"name", "quoted"}:
            self.next -= word.sort != "end"
            raise self.unexpected("IDENTIFIER")
        name = word.text.strip("`")
        if optional:
            return Invocation(function="_?._", arguments=[operand, Constant(value=name)])
        if word.sort == "name" and self.taken("("):
            return expanded(name, operand, self.listed(")"))
        return Field(operand=operand, name=name)

    def primary(self) -> Node:  # noqa: PLR0911 -- one case a sort of primary
        word = self.take()
        if word.sort in _LITERALS:
            return Constant(value=_value(word))
        if word.sort == "name":
            return self.named(word.text)
        if word.sort == "sign":
            match word.text:
                case "(":
                    inner = self.expression()
                    self.expect(")")
                    return inner
                case "[":
                    entries, optional = self.literal("]")
                    return ListOf(entries=entries, optional=optional)
                case "{":
                    entries, optional = self.literal("}")
                    return MapOf(entries=entries, optional=optional)
                case "-" if self.word.sort in {"int", "double"}:  # after an exclamation mark
                    return Constant(value=_value(self.take(), negative=True))
                case "." if self.word.sort == "name":
                    return self.named("." + self.take().text)
        self.next -= word.sort != "end"
        raise self.unexpected("an expression")

    def named(self, name: str) -> Node:
        if self.taken("("):
            self.refuse_reserved(name)
            return expanded(name, None, self.listed(")"))
        message = self.message(name)
        if message is not None:
            return message
        self.refuse_reserved(name)
        return Ident(name=name)

    def refuse_reserved(self, name: str) -> None:
        if name.removeprefix(".") in _RESERVED:
            raise SelectorError.invalid(f"reserved identifier: {name}")

    def message(self, name: str) -> Node | None:
        """`a.b{field: value}`, if that is what follows."""
        before = self.next
        while self.taken("."):
            if self.word.sort != "name":
                break
            name += f".{self.take().text}"
        if not self.taken("{"):
            self.next = before
            return None
        while not self.taken("}"):
            self.taken("?")
            if self.take().sort not in {"name", "quoted"}:
                raise self.unexpected("IDENTIFIER")
            self.expect(":")
            self.expression()
            if not self.taken(","):
                self.expect("}")
                break
        return Message(name=name)

    def listed(self, end: str) -> list[Node]:
        """Arguments up to the closing sign."""
        found: list[Node] = []
        if self.taken(end):
            return found
        found.append(self.expression())
        while self.taken(","):
            found.append(self.expression())
        self.expect(end)
        return found

    def literal(self, end: str) -> tuple[list[Any], frozenset[int]]:
        """The entries of a list or a map, and where a question mark is before one."""
        entries: list[Any] = []
        optional = set()
        if self.taken(","):
            self.expect(end)
            return entries, frozenset()
        while not self.taken(end):
            if self.taken("?"):
                optional.add(len(entries))
            entry: Any = self.expression()
            if end == "}":
                self.expect(":")
                entry = entry, self.expression()
            entries.append(entry)
            if not self.taken(","):
                self.expect(end)
                break
        return entries, frozenset(optional)


# --- words --------------------------------------------------------------------------------------

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
_DIGITS_MAX: Final = 20
"""Of 64 bits."""


class _Word(NamedTuple):
    """One word. `sort` is sign, name, quoted, int, uint, double, text, bytes, constant or end; `at` its position."""

    sort: str
    text: str
    at: int


def _words(source: str) -> list[_Word]:
    """All words, and one for the end. Raises SelectorError."""
    found, position = [], 0
    while position < len(source):
        match = _WORD.match(source, position)
        if match is None:
            raise SelectorError.invalid(f"Syntax error: token recognition error {_place(source, position)}")
        sort, text = str(match.lastgroup), match.group()
        if sort == "name" and text in _CONSTANTS:
            sort = "constant"
        elif sort == "name" and text == "in":
            sort = "sign"
        if sort != "blank":
            found.append(_Word(sort, text, position))
        position = match.end()
    return [*found, _Word("end", "<EOF>", len(source))]


def _place(source: str, position: int) -> str:
    """Where something is, for people."""
    before = source[:position]
    return f"at line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}"


def _value(word: _Word, *, negative: bool = False) -> Any:
    """What a literal stands for, as in `values`. Raises SelectorError."""
    match word.sort:
        case "constant":
            return _CONSTANTS[word.text]
        case "int":
            return _whole(word.text, "int", MIN_INT, MAX_INT, negative=negative)
        case "uint":
            return UInt(_whole(word.text[:-1], "uint", 0, MAX_UINT))
        case "double":
            value = float(word.text)
            if value == float("inf"):
                raise SelectorError.invalid("invalid double literal")
            return -value if negative else value
        case "bytes":
            return _unescaped(word.text[1:], _byte).encode("latin-1")
        case _:
            return _unescaped(word.text, _character)


def _whole(text: str, kind: str, least: int, most: int, *, negative: bool = False) -> int:
    value = most + 1
    digits = text.removeprefix("0x").lstrip("0") or "0"
    if len(digits) <= _DIGITS_MAX:
        value = int(digits, 16 if text.startswith("0x") else 10) * (-1 if negative else 1)
    if not least <= value <= most:
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
