"""Writes rules that taint devices, all or none if the server refuses one beforehand, and prints what came of it."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from webhook.api.rules import CONFIRM_IMPACT, DESCRIPTION, EVICT
from webhook.commands.shared.main import ClusterUnreachable, ServerRefusal, WrongUsage, refusal_text
from webhook.commands.shared.words import NAME, DeviceAddress, StoredTaintRule, TaintSpec, WantedRule
from webhook.config.command_line import CommandLine
from webhook.files.report import visible

if TYPE_CHECKING:
    from webhook.commands.shared.snapshot import RuleStore

Existing = Literal["refuse", "overwrite", "keep"]
"""What happens to a rule that sets the same taint on the same devices; it is kept if it asks for eviction already."""

ATTEMPTS: Final = 5
"""The worker writes the status of a rule every few seconds, which is no reason not to change or delete it."""
_TAINTED: Final = "tainted"
_KEPT: Final = "already tainted"


class DryRun(StrEnum):
    """As kubectl's flag."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"

    @property
    def suffix(self) -> str:
        """Return what kubectl adds to a line of output."""
        return {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}[self]


class TaintOrder(NamedTuple):
    """Rules to write. `texts`: confirmations by the names of rules."""

    wanted: tuple[WantedRule, ...]
    annotations: Mapping[str, str]
    texts: Mapping[str, str]
    dry_run: DryRun
    existing: Existing


class TaintResult(NamedTuple):
    """The outcome for one rule. `obj`: as it is, or would be; `refusal`: why it was not written, from `message`."""

    wanted: WantedRule
    operation: str
    name: str
    obj: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    message: str = ""

    @property
    def line(self) -> str:
        """Return what was done, as it is printed."""
        return f"{self.wanted.address} {self.operation} by {NAME}/{self.name}"


class Unanswered(ClusterUnreachable):
    """A write had no answer. `written`: those before it, or else the one that may have been written."""

    def __init__(self, text: str, written: Sequence[TaintResult]) -> None:
        super().__init__(text)
        self.written = written


def order_of(
    options: argparse.Namespace,
    addresses: Sequence[DeviceAddress],
    taints: Sequence[TaintSpec],
    annotations: Mapping[str, str],
    existing: Existing,
) -> TaintOrder:
    """Return the rules to write for devices and taints. Raises WrongUsage if a confirmation is for another."""
    wanted = tuple([WantedRule(address, taint) for address in addresses for taint in taints])
    if options.reason is not None:
        annotations = {**annotations, DESCRIPTION: options.reason}
    texts = texts_by_rule(options.confirm, [each.name for each in wanted])
    return TaintOrder(wanted, annotations, texts, DryRun(options.dry_run), existing)


async def write_taints(store: RuleStore, order: TaintOrder) -> list[TaintResult]:
    """Write the rules in order. Raises ClusterError, and ServerRefusal where a taint is there already.

    With several rules each is sent as a dry run first; if one is refused, none is written. Then raises Unanswered.
    """
    from webhook.cluster.client.errors import ClusterError  # noqa: PLC0415

    writes = planned(order, await store.all(), store.version)
    if order.dry_run is DryRun.CLIENT:
        return writes
    if len(writes) > 1 and order.dry_run is DryRun.NONE:
        rehearsed = [await _written(store, order, each, dry_run=True) for each in writes]
        if any(each.refusal for each in rehearsed):
            return [each for each in rehearsed if each.refusal]
    results = list[TaintResult]()
    for each in writes:
        try:
            results.append(await _written(store, order, each, dry_run=order.dry_run is DryRun.SERVER))
        except ClusterError as error:
            if order.dry_run is DryRun.SERVER:
                raise
            written = [result for result in results if not result.refusal]
            lines = [f"{error}; it is not known whether rule {each.name} was written", *[done.line for done in written]]
            raise Unanswered("\n".join(lines), written or [each]) from None
    return results


def planned(order: TaintOrder, stored: Sequence[StoredTaintRule], version: str) -> list[TaintResult]:
    """Return the rules as they would be sent to a server that has those that are stored. Raises ServerRefusal."""
    writes, refusals = [], []
    names = {each.name for each in order.wanted}
    for wanted in order.wanted:
        others = names - {wanted.name}
        text = order.texts.get(wanted.name)
        annotations = {**order.annotations, **({CONFIRM_IMPACT: text} if text else {})}
        found = [each for each in stored if each.is_for_rule(wanted) and each.rule.meta.name not in others]
        found.sort(key=lambda each: each.has_ended(wanted))
        # One that is being deleted is as good as gone, but for its name.
        known = next((each for each in found if not each.rule.deleting or each.rule.meta.name == wanted.name), None)
        if known is None:
            writes.append(TaintResult(wanted, _TAINTED, wanted.name, wanted.manifest(version, annotations)))
            continue
        effect = known.rule.taint.effect
        softened = "" if effect == wanted.taint.effect else f", softened to {effect},"
        if known.rule.deleting:
            name = known.rule.meta.name
            refusals.append(f"error: {wanted.address} has {wanted.taint.key} by rule {name}, which is being deleted")
        elif known.maker:
            refusals.append(f"error: {wanted.address} has {wanted.taint.key}: {visible(known.maker)}")
        elif _is_written(order, known, wanted):
            writes.append(TaintResult(wanted, _KEPT + softened, known.rule.meta.name, known.raw))
        elif order.existing == "refuse" and not known.has_ended(wanted):
            refusals.append(
                f"error: {wanted.address} already has {wanted.taint.key} taint(s) with same effect(s){softened} and"
                f" --overwrite is false (rule {known.rule.meta.name})"
            )
        else:
            changed = known.overwritten(wanted, annotations)
            writes.append(TaintResult(wanted, "modified", known.rule.meta.name, changed))
    if refusals:
        raise ServerRefusal("\n".join(refusals))
    return writes


def _is_written(order: TaintOrder, known: StoredTaintRule, wanted: WantedRule) -> bool:
    """Return whether a rule stays as it is, in a drain that goes on or beside others left to be confirmed."""
    if wanted.name in order.texts or known.has_ended(wanted):
        return False
    if order.existing == "keep":
        return EVICT not in order.annotations or known.rule.meta.annotations.get(EVICT) == "true"
    return bool(order.texts) and known.rule.taint.value == wanted.taint.value and order.existing == "refuse"


async def _written(store: RuleStore, order: TaintOrder, write: TaintResult, *, dry_run: bool) -> TaintResult:
    from webhook.cluster.client.errors import ClusterError  # noqa: PLC0415

    if write.operation.startswith(_KEPT):
        return write
    for _ in range(ATTEMPTS):
        response = await (store.create if write.operation == _TAINTED else store.replace)(write.obj, dry_run=dry_run)
        if response.granted:
            return write._replace(obj=response.body, warnings=response.warnings)
        if response.body.get("reason") != "Conflict":
            break
        try:
            found = await store.get(write.name)
            [again] = planned(order._replace(wanted=(write.wanted,)), [found] if found else [], store.version)
        except (ClusterError, ServerRefusal):
            break
        was, now = [
            ({**each.obj["metadata"], "resourceVersion": "", "managedFields": []}, each.obj["spec"])
            for each in (write, again)
        ]
        if was != now:
            break  # more than its status changed meanwhile
        write = again
    refusal = refusal_text(str(response.body.get("reason") or ""), response.message)
    return write._replace(warnings=response.warnings, refusal=refusal, message=response.message)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run`, as kubectl has it."""
    help_text = "client: only print what would be sent; server: have the server judge it without keeping it"
    parser.add_argument("--dry-run", choices=[each.value for each in DryRun], default=DryRun.NONE.value, help=help_text)


def write_warnings(warnings: Iterable[str]) -> None:
    """Write the warnings of the server to standard error, each once, as kubectl prints them."""
    sys.stderr.write("".join(f"Warning: {visible(text)}\n" for text in dict.fromkeys(warnings)))


def report_refusals(results: Sequence[TaintResult], order: TaintOrder, parser: CommandLine) -> bool:
    """Write warnings, refusals, and the command that confirms, to standard error. Return whether any was refused."""
    write_warnings(text for each in results for text in each.warnings)
    refused = [each for each in results if each.refusal]
    sys.stderr.write("".join(f"{each.refusal}\n" for each in refused))
    sys.stderr.write(confirming_text(refused, order, parser.prog, parser.given))
    if refused and len(order.wanted) > 1 and len(results) == len(refused):
        sys.stderr.write("No rule was written.\n")
    return bool(refused)


# --- confirmations --------------------------------------------------------------------------------


TEXT: Final = re.compile(r'devicetaint\.io/confirm-impact to \\?"(v1 [A-Za-z0-9=,. -]+)')
"""The text in the message of a refusal, as its first group."""
_ANOTHER_USER: Final = "one of the policy's confirmers must set annotation"
_FLAG: Final = "--confirm"
_LEFT_OUT: Final = frozenset({_FLAG, "--dry-run", "-o", "--output"})
"""Flags of the refused command that the next one does not have, each with a value."""


def add_confirm(parser: argparse.ArgumentParser) -> None:
    """Add `--confirm`, repeatable."""
    help_text = "confirm the impact with the text that a refusal contains; repeatable if there are several rules"
    parser.add_argument(_FLAG, type=as_confirmation, action="append", default=[], metavar="[RULE=]TEXT", help=help_text)


def as_confirmation(text: str) -> tuple[str, str]:
    """Return the rule, empty if there is only one, and the text of `TEXT` or `RULE=TEXT`. Raises ValueError."""
    rule, separator, said = ("", "=", text) if text.startswith("v1 ") else text.partition("=")
    if not separator or not said.startswith("v1 "):
        raise ValueError('must be the text that a refusal contains, "v1 devices=...", or RULE=TEXT')
    return rule, said


def texts_by_rule(given: Sequence[tuple[str, str]], rules: Sequence[str]) -> dict[str, str]:
    """Return the text of each rule that has one. Raises WrongUsage for texts that cannot be attributed."""
    found: dict[str, str] = {}
    for rule, text in given:
        if not rule and len(rules) != 1:
            raise WrongUsage(f"{_FLAG} needs RULE=TEXT, since there are several rules: {', '.join(rules)}")
        name = rule or rules[0]
        if name not in rules:
            raise WrongUsage(f"{_FLAG} {name}=...: this command writes no such rule, but {', '.join(rules)}")
        found[name] = text
    return found


def confirming_text(refused: Sequence[TaintResult], order: TaintOrder, program: str, words: Sequence[str]) -> str:
    """Return what to run instead: the same command with the texts given and needed; empty if that would not help."""
    needed = {each.wanted.name: found[1] for each in refused if (found := TEXT.search(each.message))}
    if not needed or len(needed) < len(refused):
        return ""
    texts = {**order.texts, **needed}
    flags = [f"{_FLAG}={text}" if len(order.wanted) == 1 else f"{_FLAG}={rule}={text}" for rule, text in texts.items()]
    another = any(_ANOTHER_USER in each.message for each in refused)
    who = "have one of the policy's confirmers run" if another else "run"
    command = " ".join([program, shlex.join([*_without(words), *flags])])
    return f"To confirm exactly this impact, {who}:\n\n  {command}\n"


def _without(words: Iterable[str]) -> Iterator[str]:
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        if name not in _LEFT_OUT:
            if not name.startswith("-o"):
                yield word
        elif not equals:
            next(left, None)
