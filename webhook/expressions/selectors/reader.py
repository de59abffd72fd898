"""A selector's text as a tree. Source: cel-go parser/gen/CEL.g4, parser/parser.go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.lexer import Lexeme, place, value_of, words_of
from webhook.expressions.selectors.macros import COPIES_MAX, expanded
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, MapOf, Message, Node, walk

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
        self.words = words_of(source)
        self.next = 0
        self.depth = 0

    # --- words --------------------------------------------------------------------------------------

    @property
    def word(self) -> Lexeme:
        return self.words[self.next]

    def take(self) -> Lexeme:
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
        where = place(self.source, self.word.at)
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
                return self.members(Constant(value=value_of(self.take(), negative=True)))
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
            return Constant(value=value_of(word))
        if word.sort == "name":
            return self.named(word.text)
        if word.sort == "sign":
            match word.text:
                case "(":
                    inner = self.expression()
                    self.expect(")")
                    return inner
                case "[":
                    return self.list_literal()
                case "{":
                    return self.map_literal()
                case "-" if self.word.sort in {"int", "double"}:  # after an exclamation mark
                    return Constant(value=value_of(self.take(), negative=True))
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

    def list_literal(self) -> Node:
        entries: list[Node] = []
        optional = set()
        if self.taken(","):
            self.expect("]")
            return ListOf(entries=[])
        while not self.taken("]"):
            if self.taken("?"):
                optional.add(len(entries))
            entries.append(self.expression())
            if not self.taken(","):
                self.expect("]")
                break
        return ListOf(entries=entries, optional=frozenset(optional))

    def map_literal(self) -> Node:
        entries: list[tuple[Node, Node]] = []
        optional = set()
        if self.taken(","):
            self.expect("}")
            return MapOf(entries=[])
        while not self.taken("}"):
            if self.taken("?"):
                optional.add(len(entries))
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self.taken(","):
                self.expect("}")
                break
        return MapOf(entries=entries, optional=frozenset(optional))
