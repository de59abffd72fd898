"""What verbs that write rules print: objects as kubectl prints them, warnings, refusals, and how to confirm."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from webhook.commands.shared.confirmations import confirming_text
from webhook.files.render import visible
from webhook.files.structured import STRUCTURED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.commands.shared.tainting import TaintOrder, TaintResult


def objects_text(objects: Sequence[dict[str, Any]], output: str) -> str:
    """One object as it is, several as a List."""
    if len(objects) == 1:
        return STRUCTURED[output](objects[0])
    return STRUCTURED[output]({"apiVersion": "v1", "kind": "List", "items": list(objects)}) if objects else ""


def write_warnings(warnings: Sequence[str]) -> None:
    """Warnings of the server on standard error, as kubectl prints them."""
    sys.stderr.write("".join(f"Warning: {visible(text)}\n" for text in warnings))


def report_refusals(results: Sequence[TaintResult], order: TaintOrder, program: str, words: Sequence[str]) -> bool:
    """Warnings and refusals on standard error, and the command that confirms. Returns whether any was refused."""
    write_warnings(list(dict.fromkeys(text for each in results for text in each.warnings)))
    refused = [each for each in results if each.refusal]
    sys.stderr.write("".join(f"{each.refusal}\n" for each in refused))
    needed = [each.needed for each in refused if each.needed is not None]
    if needed and len(needed) == len(refused):
        sys.stderr.write(confirming_text(program, words, needed, order.texts, len(order.wanted)))
    if refused and len(order.wanted) > 1 and len(results) == len(refused):
        sys.stderr.write("No rule was written.\n")
    return bool(refused)
