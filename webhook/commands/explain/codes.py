"""What each warning code means and what to do about it: `codes.md`, of which docs/admission.md is held to be a copy."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from typing import Final, NamedTuple

CODE: Final = re.compile(r"DT[0-9]{3}", re.IGNORECASE)
_SECTION: Final = re.compile(r"^### (DT[0-9]{3}): (.+)\n\n((?:(?!###).*\n?)*)", re.MULTILINE)


class WarningCode(NamedTuple):
    """A code, its title, and its text in Markdown."""

    code: str
    title: str
    text: str


@cache
def codes() -> dict[str, WarningCode]:
    """All codes, in the order of the page."""
    page = (pkgutil.get_data("webhook.commands.explain", "codes.md") or b"").decode()
    found = (WarningCode(code, title, text.strip()) for code, title, text in _SECTION.findall(page))
    return {each.code: each for each in found}
