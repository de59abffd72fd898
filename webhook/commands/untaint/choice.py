"""Which rules an `untaint` is about, those on just these devices that a person wrote, and how they are deleted."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.commands.shared.device_selection import belonging, refuse_missing
from webhook.commands.shared.main import ServerRefusal, refusal_text
from webhook.commands.shared.words import DeviceAddress
from webhook.files.report import visible
from webhook.inventory.fates import DeviceNames
from webhook.inventory.matching import selects

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from webhook.commands.shared.cluster_reading import RuleStore
    from webhook.commands.shared.device_selection import DeviceSelection
    from webhook.commands.shared.node_devices import ReadInventory
    from webhook.commands.shared.words import StoredTaintRule, TaintPattern
    from webhook.inventory.state import Inventory

_ATTEMPTS: Final = 5
"""The worker writes the status of a rule every few seconds, which is no reason not to delete it."""


class UntaintChoice(NamedTuple):
    """For one address and one pattern: the rules to delete, and why other taints of that key stay."""

    address: DeviceAddress
    pattern: TaintPattern
    rules: tuple[StoredTaintRule, ...]
    staying: tuple[str, ...]

    @property
    def refusal(self) -> str:
        """In kubectl's words, if there is no rule to delete; empty if there is one."""
        if self.rules:
            return ""
        return "\n".join([f'error: taint "{self.pattern}" not found on {self.address}', *self.staying])


def choose(
    address: DeviceAddress, pattern: TaintPattern, stored: Sequence[StoredTaintRule], inventory: Inventory | None
) -> UntaintChoice:
    """What to delete. `inventory` has slices; None if they could not be read."""
    of_key = [each for each in stored if pattern.matches(each.rule.taint.key, each.rule.taint.effect)]
    exact = [each for each in of_key if each.is_for(address)]
    staying = [each.maker for each in exact if each.maker]
    staying += [text for each in of_key if each not in exact for text in _other_rule(address, each)]
    if inventory is not None:
        staying += _slice_taints(address, pattern, inventory)
    return UntaintChoice(
        address, pattern, tuple(each for each in exact if not each.maker), tuple(map(visible, staying))
    )


def choose_on_nodes(
    selection: DeviceSelection,
    nodes: Collection[str],
    patterns: Sequence[TaintPattern],
    stored: Sequence[StoredTaintRule],
    read: ReadInventory,
) -> list[UntaintChoice]:
    """What to delete on nodes: of each pattern the rules that there are; all addresses if there are none.

    A pool that has a node's name is that node's, also if its driver publishes nothing any more. Raises ServerRefusal.
    """
    drivers = {each.driver for each in selection.addresses}
    here = {*belonging(read, selection, nodes)}
    for rule in stored:
        names = DeviceNames.of(rule.rule.selector)
        if names.driver is None or names.pool not in nodes or names.driver not in (drivers or {names.driver}):
            continue
        if not any(read.inventory.pools.selected(names.driver, names.pool)):
            here.add(DeviceAddress(*[part or "" for part in names]))
    if not here:
        refuse_missing(read, selection, nodes)
        raise ServerRefusal(f'error: taint "{patterns[0]}" not found on {", ".join(sorted(nodes))}')
    choices = []
    for pattern in patterns:
        found = [choose(each, pattern, stored, read.inventory) for each in sorted(here)]
        choices += [each for each in found if each.rules] or found
    return choices


def _other_rule(address: DeviceAddress, stored: StoredTaintRule) -> Iterator[str]:
    """A rule for more devices, or for some of these."""
    rule, name = stored.rule, stored.rule.meta.name
    selector = rule.selector
    if selector is None or selector.empty:
        yield f"rule {name} taints every device of every driver: kubectl delete devicetaintrule {name}"
    elif _within(address, stored):
        yield f"rule {name} taints only {_words(stored)}: untaint that"
    elif selects(selector, *address):
        yield stored.maker or f"rule {name} also taints other devices, {_words(stored)}: untaint all of these"


def _within(address: DeviceAddress, stored: StoredTaintRule) -> bool:
    """Whether all that a rule selects is part of what the address names."""
    selector = stored.rule.selector
    assert selector is not None
    names = selector.driver or "", selector.pool or "", selector.device or ""
    return all(wanted in ("", name) for wanted, name in zip(address, names, strict=True))


def _words(stored: StoredTaintRule) -> str:
    selector = stored.rule.selector
    assert selector is not None
    parts = {
        "driver": selector.driver,
        "pool": selector.pool,
        "device": selector.device,
        "class": selector.device_class_name,
        "CEL": "; ".join(each.expression or "" for each in selector.selectors) or None,
    }
    return ", ".join(f"{name} {text}" for name, text in parts.items() if text is not None) or "by unknown fields"


def _slice_taints(address: DeviceAddress, pattern: TaintPattern, inventory: Inventory) -> Iterator[str]:
    """Taints that the driver publishes, by slice."""
    devices: dict[str, list[str]] = {}
    for (driver, pool), found in inventory.pools.selected(address.driver, address.pool or None):
        for value in found.newest:
            of_slice = [(each.device, each.taint) for each in value.slice_taints]
            of_slice += [(device.name, taint) for device in value.devices for taint in device.taints]
            for device, taint in of_slice:
                if address.covers(driver, pool, device) and pattern.matches(taint.key, taint.effect):
                    devices.setdefault(value.meta.name, []).append(device)
    for name, names in sorted(devices.items()):
        which = ", ".join(sorted(set(names))[:3]) + (" and others" if len(set(names)) > 3 else "")
        yield (
            f"driver {address.driver} publishes that taint of {which} in ResourceSlice {name}, and would publish it "
            "again: only the driver can take it back; a pod that may use the device all the same has to tolerate it"
        )


class RemovedRule(NamedTuple):
    """The outcome for a rule. `refusal`: why it is still there."""

    stored: StoredTaintRule
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    """Return what it waits for, if it is not gone yet."""


async def remove(store: RuleStore, stored: StoredTaintRule, *, dry_run: bool) -> RemovedRule:
    """Deletes the rule with its uid and resource version as preconditions. Raises ClusterError."""
    for _ in range(_ATTEMPTS):
        response = await store.delete(stored, dry_run=dry_run)
        if response.granted:
            left = response.body.get("metadata") or {}
            # A Status has no finalizers; the object is in the answer while some are left.
            return RemovedRule(stored, "", response.warnings, tuple(left.get("finalizers") or ()))
        if response.code == HTTPStatus.NOT_FOUND:
            return RemovedRule(stored)
        if response.code != HTTPStatus.CONFLICT:
            return RemovedRule(stored, refusal_text(str(response.body.get("reason") or ""), response.message))
        found = await store.get(stored.rule.meta.name)
        if found is None:
            return RemovedRule(stored)
        if _matters(found) != _matters(stored):
            return RemovedRule(stored, f"error: rule {stored.rule.meta.name} was changed meanwhile: look at it again")
        stored = found
    return RemovedRule(stored, f"error: rule {stored.rule.meta.name} keeps changing: try again")


def _matters(stored: StoredTaintRule) -> tuple[object, ...]:
    """What the decision to delete it was made by."""
    rule = stored.rule
    return rule.meta.uid, rule.selector, rule.taint, stored.maker
