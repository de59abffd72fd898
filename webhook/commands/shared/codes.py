"""What each warning code means and what to do about it, and which of them a run reports (`--select`, `--ignore`).

The texts are in `explain/codes.md`.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.config.command_line import did_you_mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

CODE: Final = re.compile(r"DT[0-9]{3}", re.IGNORECASE)
_WHOLE: Final = 5
"""Letters of a code; a shorter beginning is near to many."""
_SECTION: Final = re.compile(r"^### (DT[0-9]{3}): (.+)\n\n((?:(?!###).*\n?)*)", re.MULTILINE)


class WarningCode(NamedTuple):
    """A code, its title, and its text in Markdown."""

    code: str
    title: str
    text: str


@cache
def codes() -> dict[str, WarningCode]:
    """Return all codes, in the order of the page."""
    page = (pkgutil.get_data("webhook.commands.explain", "codes.md") or b"").decode()
    found = (WarningCode(code, title, text.strip()) for code, title, text in _SECTION.findall(page))
    return {each.code: each for each in found}


# --- which of them a run reports ----------------------------------------------------------------


def as_code_prefixes(text: str) -> list[str]:
    """Return the codes, or beginnings of codes, of `DT001,DT1`. Raises ValueError if no code begins with one."""
    words = [word.strip().upper() for word in text.split(",")]
    for word in words:
        if not word or not any(code.startswith(word) for code in codes()):
            hint = did_you_mean(word, codes()) if len(word) == _WHOLE else ""
            raise ValueError(f'must be codes such as DT001, or how they begin: no code begins with "{word}"{hint}')
    return words


def left_out(select: Collection[str], ignore: Collection[str]) -> frozenset[str]:
    """Return the codes that are not reported: those that are not selected, if any are, and those that are ignored.

    Of two beginnings that fit a code the longer counts: with DT0 ignored and DT001 selected, DT001 is reported.
    """
    if not select and not ignore:
        return frozenset()
    return frozenset(code for code in codes() if _longest(code, ignore) >= max(_longest(code, select), int(not select)))


def _longest(code: str, beginnings: Collection[str]) -> int:
    """Return the length of the longest beginning that fits, 0 if none does."""
    return max((len(each) for each in beginnings if code.startswith(each)), default=0)


def add_codes(parser: argparse.ArgumentParser) -> None:
    """Add `--select` and `--ignore`."""
    what = {
        "--select": "report only warnings with these codes",
        "--ignore": "do not report warnings with these codes",
    }
    for name, text in what.items():
        help_text = f"{text}, or that begin so; repeatable; the longer beginning wins; errors are always reported"
        parser.add_argument(name, type=as_code_prefixes, action="extend", default=[], metavar="DT1,...", help=help_text)
