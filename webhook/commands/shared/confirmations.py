"""Confirmations on the command line, and the command that confirms what was refused."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TEXT: Final = re.compile(r'devicetaint\.io/confirm-impact to \\?"(v1 [A-Za-z0-9=,. -]+)')
"""The text in the message of a refusal, as its first group."""
_ANOTHER_USER: Final = "one of the policy's confirmers must set annotation"
_FLAG: Final = "--confirm"
_LEFT_OUT: Final = frozenset({_FLAG, "--dry-run", "-o", "--output"})
"""Flags of the refused command that the next one does not have, each with a value."""


class GivenText(NamedTuple):
    """A text of `--confirm`, and the rule that it is for; empty if there is only one."""

    rule: str
    text: str


class NeededText(NamedTuple):
    """The text that a refusal contains, for a rule. `by_another`: only one of the policy's confirmers may set it."""

    rule: str
    text: str
    by_another: bool


def as_confirmation(text: str) -> GivenText:
    """`TEXT` or `RULE=TEXT`. Raises ValueError."""
    rule, separator, said = ("", "=", text) if text.startswith("v1 ") else text.partition("=")
    if not separator or not said.startswith("v1 "):
        raise ValueError('must be the text that a refusal contains, "v1 devices=...", or RULE=TEXT')
    return GivenText(rule, said)


def texts_by_rule(given: Sequence[GivenText], rules: Sequence[str]) -> dict[str, str]:
    """The text of each rule that has one. Raises ValueError for texts that cannot be attributed."""
    found: dict[str, str] = {}
    for rule, text in given:
        if not rule and len(rules) != 1:
            raise ValueError(f"{_FLAG} needs RULE=TEXT, since there are several rules: {', '.join(rules)}")
        name = rule or rules[0]
        if name not in rules:
            raise ValueError(f"{_FLAG} {name}=...: this command writes no such rule, but {', '.join(rules)}")
        found[name] = text
    return found


def needed_text(rule: str, message: str) -> NeededText | None:
    """The text in the message of a refusal; None if the rule cannot be confirmed."""
    found = TEXT.search(message)
    return None if found is None else NeededText(rule, found[1], _ANOTHER_USER in message)


def confirming_text(
    program: str, words: Sequence[str], needed: Sequence[NeededText], given: Mapping[str, str], rules: int
) -> str:
    """What to run instead: the same command with the texts that were given and are needed."""
    texts = {**given, **{each.rule: each.text for each in needed}}
    flags = [f"{_FLAG}={text}" if rules == 1 else f"{_FLAG}={rule}={text}" for rule, text in texts.items()]
    who = "have one of the policy's confirmers run" if any(each.by_another for each in needed) else "run"
    command = " ".join([program, shlex.join([*_without(words), *flags])])
    return f"To confirm exactly this impact, {who}:\n\n  {command}\n"


def _without(words: Sequence[str]) -> Iterator[str]:
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name in _LEFT_OUT:
            skip = not equals
        elif not (name.startswith("-o") and not name.startswith("--")):
            yield word
