"""Writes rules that taint devices, all or none if the server refuses one beforehand, and prints what came of it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.rules import CONFIRM_IMPACT, EVICT
from webhook.commands.shared.confirmations import confirming_text, needed_text
from webhook.commands.shared.server_errors import ServerRefusal, refusal_text
from webhook.files.render import visible
from webhook.files.structured import STRUCTURED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from webhook.cluster.client.raw import RawResponse
    from webhook.commands.shared.confirmations import NeededText
    from webhook.commands.shared.rule_objects import StoredTaintRule, WantedRule
    from webhook.commands.shared.rule_store import RuleStore

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
    """What became of one rule. `refusal`: why it was not written; `obj`: as it is, or would be."""

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
    """Whether a rule stays as it is: of a drain that goes on, or beside others that were left to be confirmed."""
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
        refusal=_refusal(response),
        needed=needed_text(write.wanted.name, response.message),
    )


def _refusal(response: RawResponse) -> str:
    return refusal_text(str(response.body.get("reason") or ""), response.message)


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
