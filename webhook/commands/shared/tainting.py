"""Writes rules that taint devices, all or none if the server refuses one beforehand, and prints what came of it."""

from __future__ import annotations

import re
import shlex
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.rules import CONFIRM_IMPACT, EVICT
from webhook.commands.shared.main import ServerRefusal, refusal_text
from webhook.files.report import STRUCTURED, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.commands.shared.cluster_reading import RuleStore
    from webhook.commands.shared.words import StoredTaintRule, WantedRule

_TAINTED: Final = "tainted"
_MODIFIED: Final = "modified"
_KEPT: Final = "already tainted"


class DryRun(StrEnum):
    """As kubectl's flag."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"

    @property
    def suffix(self) -> str:
        """What kubectl adds to a line of output."""
        return {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}[self]


class OnExisting(StrEnum):
    """What happens to a rule that sets the same taint on the same devices."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
    KEEP = "keep"
    """If it asks for eviction already."""


class TaintOrder(NamedTuple):
    """Rules to write. `texts`: confirmations by the names of rules."""

    wanted: tuple[WantedRule, ...]
    annotations: Mapping[str, str]
    texts: Mapping[str, str]
    dry_run: DryRun
    on_existing: OnExisting


class TaintResult(NamedTuple):
    """The outcome for one rule. `refusal`: why it was not written; `obj`: as it is, or would be."""

    wanted: WantedRule
    name: str
    operation: str = ""
    obj: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    needed: NeededText | None = None


class _Write(NamedTuple):
    wanted: WantedRule
    operation: str
    manifest: dict[str, Any]


async def write_taints(store: RuleStore, order: TaintOrder) -> list[TaintResult]:
    """Writes the rules in order. Raises ClusterError, and ServerRefusal where a taint is there already.

    With several rules each is sent as a dry run first; if one is refused, none is written.
    """
    stored = await store.all()
    writes = _planned(order, stored, store.version)
    dry = order.dry_run is DryRun.SERVER
    if order.dry_run is DryRun.CLIENT:
        return [TaintResult(each.wanted, _name(each), each.operation, each.manifest) for each in writes]
    if len(writes) > 1 and not dry:
        rehearsed = [await _written(store, each, dry_run=True) for each in writes]
        if any(each.refusal for each in rehearsed):
            return [each for each in rehearsed if each.refusal]
    return [await _written(store, each, dry_run=dry) for each in writes]


def drafted(order: TaintOrder, version: str) -> list[TaintResult]:
    """The rules as they would be sent to a server that has none of them."""
    return [
        TaintResult(each.wanted, _name(each), each.operation, each.manifest) for each in _planned(order, (), version)
    ]


def _name(write: _Write) -> str:
    return str(write.manifest["metadata"]["name"])


def _planned(order: TaintOrder, stored: Sequence[StoredTaintRule], version: str) -> list[_Write]:
    writes, refusals = [], []
    for wanted in order.wanted:
        text = order.texts.get(wanted.name)
        annotations = {**order.annotations, **({CONFIRM_IMPACT: text} if text else {})}
        known = next((each for each in stored if each.is_for_rule(wanted)), None)
        if known is None:
            writes.append(_Write(wanted, _TAINTED, wanted.manifest(version, annotations)))
        elif known.maker:
            refusals.append(f"error: {wanted.address} has {wanted.taint.key}: {visible(known.maker)}")
        elif _is_written(order, known, wanted):
            writes.append(_Write(wanted, _KEPT, dict(known.raw)))
        elif order.on_existing is OnExisting.REFUSE:
            refusals.append(
                f"error: {wanted.address} already has {wanted.taint.key} taint(s) with same effect(s) and --overwrite"
                f" is false (rule {known.rule.meta.name})"
            )
        else:
            writes.append(_Write(wanted, _MODIFIED, known.overwritten(wanted, annotations)))
    if refusals:
        raise ServerRefusal("\n".join(refusals))
    return writes


def _is_written(order: TaintOrder, known: StoredTaintRule, wanted: WantedRule) -> bool:
    """Return whether a rule stays as it is, in a drain that goes on or beside others left to be confirmed."""
    if wanted.name in order.texts:
        return False
    if order.on_existing is OnExisting.KEEP:
        return known.rule.meta.annotations.get(EVICT) == "true"
    same = known.rule.taint.value == wanted.taint.value
    return bool(order.texts) and same and order.on_existing is OnExisting.REFUSE


async def _written(store: RuleStore, write: _Write, *, dry_run: bool) -> TaintResult:
    name = _name(write)
    if write.operation == _KEPT:
        return TaintResult(write.wanted, name, _KEPT, write.manifest)
    send = store.create if write.operation == _TAINTED else store.replace
    response = await send(write.manifest, dry_run=dry_run)
    if response.granted:
        return TaintResult(write.wanted, name, write.operation, response.body, response.warnings)
    return TaintResult(
        write.wanted,
        name,
        warnings=response.warnings,
        refusal=refusal_text(str(response.body.get("reason") or ""), response.message),
        needed=needed_text(write.wanted.name, response.message),
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`, as kubectl has it."""
    parser.add_argument(
        "--dry-run",
        choices=[each.value for each in DryRun],
        default=DryRun.NONE.value,
        help="client: only print what would be sent; server: have the server judge it without keeping it",
    )


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


def add_confirm(parser: argparse.ArgumentParser) -> None:
    """`--confirm`, repeatable."""
    parser.add_argument(
        "--confirm",
        type=as_confirmation,
        action="append",
        default=[],
        metavar="[RULE=]TEXT",
        help="confirm the impact with the text that a refusal contains; repeatable if there are several rules",
    )


# --- confirmations --------------------------------------------------------------------------------


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
