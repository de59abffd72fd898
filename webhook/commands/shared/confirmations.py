"""Confirmation codes on the command line, and the command that confirms what was refused."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CODE: Final = re.compile(r'devicetaint\.io/confirm-impact to \\?"(v1\.[A-Za-z0-9._-]+)')
"""The code in the message of a refusal, as its first group."""
_ANOTHER_USER: Final = "another user must set annotation"
_FLAG: Final = "--confirm"
_LEFT_OUT: Final = frozenset({_FLAG, "--dry-run", "-o", "--output"})
"""Flags of the refused command that the next one does not have, each with a value."""


class GivenCode(NamedTuple):
    """A code of `--confirm`, and the rule that it is for; empty if there is only one."""

    rule: str
    code: str


class NeededCode(NamedTuple):
    """The code that a refusal contains, for a rule. `by_another`: only another user may confirm."""

    rule: str
    code: str
    by_another: bool


def as_confirmation(text: str) -> GivenCode:
    """`CODE` or `RULE=CODE`. Raises ValueError."""
    rule, _, code = text.rpartition("=")
    if not code.startswith("v1."):
        raise ValueError('must be the code that a refusal contains, "v1....", or RULE=CODE')
    return GivenCode(rule, code)


def codes_by_rule(given: Sequence[GivenCode], rules: Sequence[str]) -> dict[str, str]:
    """The code of each rule that has one. Raises ValueError for codes that cannot be attributed."""
    found: dict[str, str] = {}
    for rule, code in given:
        if not rule and len(rules) != 1:
            raise ValueError(f"{_FLAG} needs RULE=CODE, since there are several rules: {', '.join(rules)}")
        name = rule or rules[0]
        if name not in rules:
            raise ValueError(f"{_FLAG} {name}=...: this command writes no such rule, but {', '.join(rules)}")
        found[name] = code
    return found


def needed_code(rule: str, message: str) -> NeededCode | None:
    """The code in the message of a refusal; None if the rule cannot be confirmed."""
    found = CODE.search(message)
    return None if found is None else NeededCode(rule, found[1], _ANOTHER_USER in message)


def confirming_text(
    program: str, words: Sequence[str], needed: Sequence[NeededCode], given: Mapping[str, str], rules: int
) -> str:
    """What to run instead: the same command with the codes that were given and are needed."""
    codes = {**given, **{each.rule: each.code for each in needed}}
    flags = [f"{_FLAG}={code}" if rules == 1 else f"{_FLAG}={rule}={code}" for rule, code in codes.items()]
    who = "have another user run" if any(each.by_another for each in needed) else "run"
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
