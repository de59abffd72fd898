"""celpy's grammar of CEL, with terminals for texts and bytes that take time in proportion to the text.

celpy's own try two ways for each backslash, and both again for the next: an open quote before 45 backslashes takes
hours, in a call to C that no other thread can interrupt. Those here take the same tokens out of every text.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from typing import Any, Final

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
def parser() -> Any:
    """The parser, a `lark.Lark` with the options that celpy gives to its own. May be shared between threads."""
    # The Lark that celpy brings. Imported on first use: celpy costs 0.3 s and 30 MiB, and only retired selectors and
    # policies need it.
    from celpy.celparser import CELParser, Lark  # type: ignore[attr-defined] # noqa: PLC0415

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
