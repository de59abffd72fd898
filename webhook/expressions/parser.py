"""CEL's text as a tree of our own. Only its syntax is celpy's; what an expression means is not looked at here.

celpy's own evaluator is left alone: it takes 0.2 to 1 ms an expression, turns every error inside `has()` into false,
and has no types, so that a misspelt field is found when it is too late.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

MAX_DEPTH: Final = 32
"""How deep operators, calls, indexes and lists may nest. Parentheses and chains of `&&` or `||` cost no depth."""

_NUMBER_MAX_CHARACTERS: Final = 32


class BadExpression(Exception):  # noqa: N818 -- it says what the expression is
    """The expression is refused; `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Literal(msgspec.Struct, frozen=True):
    """A text, whole number, or truth value."""

    text: str
    value: str | int | bool


class Name(msgspec.Struct, frozen=True):
    """A variable."""

    text: str
    name: str


class Select(msgspec.Struct, frozen=True):
    """`operand.field`."""

    text: str
    operand: Node
    field: str


class Index(msgspec.Struct, frozen=True):
    """`operand[key]`."""

    text: str
    operand: Node
    key: Node


class Call(msgspec.Struct, frozen=True):
    """`function(arguments)`, or `target.function(arguments)`; macros too."""

    text: str
    target: Node | None
    function: str
    arguments: tuple[Node, ...]


class Entries(msgspec.Struct, frozen=True):
    """`[a, b]`."""

    text: str
    entries: tuple[Node, ...]


class Unary(msgspec.Struct, frozen=True):
    """`!` or `-` of something."""

    text: str
    operator: str
    operand: Node


class Binary(msgspec.Struct, frozen=True):
    """A comparison, `in`, or arithmetic."""

    text: str
    operator: str
    left: Node
    right: Node


class Logical(msgspec.Struct, frozen=True):
    """A chain of `&&` or of `||`, in the order it is written."""

    text: str
    operator: str
    operands: tuple[Node, ...]


class Choice(msgspec.Struct, frozen=True):
    """`condition ? then : otherwise`."""

    text: str
    condition: Node
    then: Node
    otherwise: Node


class Unsupported(msgspec.Struct, frozen=True):
    """CEL that nothing here needs; `what` names it in the plural."""

    text: str
    what: str


Node: TypeAlias = Literal | Name | Select | Index | Call | Entries | Unary | Binary | Logical | Choice | Unsupported

_OPERATORS: Final = {
    "relation_lt": "<",
    "relation_le": "<=",
    "relation_gt": ">",
    "relation_ge": ">=",
    "relation_eq": "==",
    "relation_ne": "!=",
    "relation_in": "in",
    "addition_add": "+",
    "addition_sub": "-",
    "multiplication_mul": "*",
    "multiplication_div": "/",
    "multiplication_mod": "%",
    "unary_not": "!",
    "unary_neg": "-",
}
_CHAINS: Final = {"conditionalor": "||", "conditionaland": "&&"}
_WRAPPERS: Final = frozenset(
    {
        *("expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary"),
        *("member", "primary", "paren_expr"),
    }
)
_UNSUPPORTED: Final = {
    "FLOAT_LIT": "floating-point numbers",
    "UINT_LIT": "unsigned numbers",
    "BYTES_LIT": "bytes",
    "NULL_LIT": "null literals",
    "map_lit": "map literals",
    "member_object": "messages",
    "dot_ident": "names with a leading dot",
    "dot_ident_arg": "names with a leading dot",
}


# Terminals for texts and bytes that take time in proportion to the text, and the same tokens as celpy's own. Those try
# two ways for each backslash, and both again for the next: an open quote before 45 backslashes takes hours, in a call
# to C that no other thread can interrupt.
# celpy takes what is escaped if the text can end after it. If it cannot, the last quote ends the text, even where a
# backslash stands before it. The two sorts of characters inside differ in the first one, so there is one way only.
_SHORT: Final = r"Q(?:(?:[^Q\\\n]|\\.)*Q|.*Q)"
_LONG: Final = r"QQQ(?:(?:[^Q\\]|\\[\s\S]|Q(?!QQ))*QQQ|[\s\S]*QQQ)"


def _quoted(pattern: str) -> str:
    return "|".join(pattern.replace("Q", quote) for quote in "'\"")


_TERMINALS: Final = {
    "STRING_LIT": f"[rR]?(?:{_quoted(_SHORT)})",
    "MLSTRING_LIT": f"[rR]?(?:{_quoted(_LONG)})",
    "BYTES_LIT": f"[bB][rR]?(?:{_quoted(_LONG)}|{_quoted(_SHORT)})",
}
"""The lexer tries long patterns first, so that of MLSTRING_LIT has to be longer than that of STRING_LIT."""


def _with_linear_pattern(terminal: Any) -> None:
    if terminal.name in _TERMINALS:
        terminal.pattern = type(terminal.pattern)(_TERMINALS[terminal.name])


@cache
def _parser() -> Any:
    """The parser, a `lark.Lark` with the options that celpy gives to its own. May be shared between threads."""
    # Imported on first use: celpy costs 0.3 s and 30 MiB, and only policies need it.
    from celpy.celparser import CELParser  # noqa: PLC0415 -- see above
    from lark import Lark  # noqa: PLC0415 -- as above

    grammar = pkgutil.get_data("celpy", "cel.lark")
    assert grammar is not None
    return Lark(
        grammar.decode(),
        parser="lalr",
        start="expr",
        g_regex_flags=re.MULTILINE,
        lexer_callbacks={"IDENT": CELParser.ambiguous_literals},
        propagate_positions=True,
        maybe_placeholders=False,
        priority="invert",
        edit_terminals=_with_linear_pattern,
    )


def parse(expression: str) -> Any:
    """The tree of celpy's grammar, built without recursion in time proportional to the text. Raises BadExpression."""
    if not expression.strip():
        raise BadExpression("compilation failed: the expression is empty")
    lark = _parser()
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken  # noqa: PLC0415 -- see _parser

    try:
        return lark.parse(expression)
    except (UnexpectedCharacters, UnexpectedToken) as error:
        where = f"line {error.line}, column {error.column}"
        raise BadExpression(f"compilation failed: syntax error at {where}") from None


def read(expression: str) -> Node:
    """The tree of an expression, at most MAX_DEPTH deep. Raises BadExpression."""
    return _Reader(expression).node(parse(expression), MAX_DEPTH)


class _Reader:
    """Makes nodes of celpy's tree, where one pair of parentheses is ten levels and most are only wrapping."""

    def __init__(self, source: str) -> None:
        self.source = source

    def node(self, tree: Any, depth: int) -> Node:  # noqa: C901, PLR0911, PLR0912 -- one case a rule of the grammar
        while tree.data in _WRAPPERS and len(tree.children) == 1:
            tree = tree.children[0]
        if depth == 0:
            raise BadExpression(f"compilation failed: nested more than {MAX_DEPTH} deep")
        text = self.text(tree)
        data = str(tree.data)
        below = depth - 1
        if data in _CHAINS:
            return self.chain(tree, text, below)
        if data in _UNSUPPORTED:
            return Unsupported(text, _UNSUPPORTED[data])
        match data, tree.children:
            case "literal", [token]:
                return self.literal(token)
            case "ident", [name]:
                return Name(text, str(name))
            case "list_lit", entries:
                return Entries(text, self.nodes(entries, below))
            case "ident_arg", [function, *arguments]:
                return Call(text, None, str(function), self.nodes(arguments, below))
            case "member_dot", [operand, field]:
                return Select(text, self.node(operand, below), str(field))
            case "member_dot_arg", [target, function, *arguments]:
                return Call(text, self.node(target, below), str(function), self.nodes(arguments, below))
            case "member_index", [operand, key]:
                return Index(text, self.node(operand, below), self.node(key, below))
            case "unary", [operator, operand]:
                return Unary(text, _OPERATORS[operator.data], self.node(operand, below))
            case "expr", [condition, then, otherwise]:
                return Choice(text, self.node(condition, below), self.node(then, below), self.node(otherwise, below))
            case _, [operation, right]:
                left = self.node(operation.children[0], below)
                return Binary(text, _OPERATORS[operation.data], left, self.node(right, below))
            case _:  # a rule that the grammar does not have yet
                return Unsupported(text, data)

    def nodes(self, exprlist: list[Any], depth: int) -> tuple[Node, ...]:
        """Of an `exprlist`, which is left out where there is nothing in it."""
        return tuple(self.node(child, depth) for tree in exprlist for child in tree.children)

    def chain(self, tree: Any, text: str, depth: int) -> Node:
        operands = []
        data = tree.data
        while tree.data == data and len(tree.children) == 2:
            tree, right = tree.children
            operands.append(self.node(right, depth))
        operands.append(self.node(tree, depth))
        return Logical(text, _CHAINS[data], tuple(reversed(operands)))

    def literal(self, token: Any) -> Node:
        text = str(token)
        if token.type in _UNSUPPORTED:
            return Unsupported(text, _UNSUPPORTED[token.type])
        if token.type == "BOOL_LIT":
            return Literal(text, text == "true")
        if token.type == "INT_LIT":
            return self.number(text)
        from celpy.evaluation import celstr  # noqa: PLC0415 -- see _parser

        try:
            return Literal(text, str(celstr(token)))
        except (ValueError, OverflowError):
            raise BadExpression(f"compilation failed: {text} has an escape that is no character") from None

    def number(self, text: str) -> Node:
        # 64 bits have 19 digits; Python raises at 4,300, and is slow before.
        if len(text) > _NUMBER_MAX_CHARACTERS:
            raise BadExpression(f"compilation failed: {text[:_NUMBER_MAX_CHARACTERS]}... has more than 64 bits")
        return Literal(text, int(text, 16 if "x" in text else 10))

    def text(self, tree: Any) -> str:
        return "" if tree.meta.empty else self.source[tree.meta.start_pos : tree.meta.end_pos]
