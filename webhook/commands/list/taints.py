"""Every taint of every device: where it comes from, since when, and which pods it concerns. Pure.

A rule that selects by class or CEL is listed on each device that its names allow, since only its names are read here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from webhook.admission.impact_text import first_names
from webhook.api.rules import DESCRIPTION, EVICT, EXPIRES_AT, condition_of
from webhook.api.taints import NO_EXECUTE
from webhook.commands.shared.words import DeviceAddress
from webhook.eviction.conditions import EVICTION, IN_TREE
from webhook.inventory.fates import DeviceNames
from webhook.inventory.holders import is_published
from webhook.inventory.impact import Taint
from webhook.inventory.matching import FOR_EVER, tolerates
from webhook.inventory.scope import can_judge
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.api.rules import DeviceTaintRule
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.commands.shared.node_devices import NodeDevices
    from webhook.inventory.state import Inventory

_Names = tuple[str | None, str | None, str | None]


class TaintSource(NamedTuple):
    """What sets a taint. `kind`: slice, rule, patch or reaction; `rule`: the rule's name, if it is one."""

    kind: str
    name: str
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class AffectedUser(NamedTuple):
    """A pod, or another consumer of claims, that uses the device; `tolerates`: the taint, for ever."""

    namespace: str
    resource: str
    name: str
    tolerates: bool

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}"
        return name if self.resource == "pods" else f"{self.resource}/{name}"


class ListedTaint(NamedTuple):
    """One taint on one device; no taint for a device without any."""

    device: DeviceAddress
    node: str
    taint: DeviceTaint | None = None
    source: TaintSource | None = None
    evict: bool = False
    expires: str = ""
    reason: str = ""
    eviction: str = ""
    """What the worker, or else the in-tree controller, says of a rule that evicts: the reason of its condition."""
    users: tuple[AffectedUser, ...] = ()

    @property
    def affected(self) -> tuple[AffectedUser, ...]:
        """The users that do not tolerate it."""
        return tuple(each for each in self.users if not each.tolerates)

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells it from others while a list is watched."""
        taint = ("", "") if self.taint is None else (self.taint.key, self.taint.effect)
        return (*self.device, str(self.source), self.source.rule if self.source else "", *taint)


def listed_taints(inventory: Inventory, devices: NodeDevices, *, untainted: bool = False) -> list[ListedTaint]:
    """All taints, by device, then slices before rules, then by name; `untainted`: also devices without any.

    Devices that an allocation holds are among them, also where no slice shows them any more.
    """
    rules = _RulesByName(inventory)
    slice_of = {
        (driver, pool, device.name): value.meta.name
        for (driver, pool), published in inventory.pools.items()
        for value in published.newest
        for device in value.devices
    }
    found: list[ListedTaint] = []
    for device in sorted({DeviceAddress(*each) for each in (*slice_of, *inventory.usage.unpublished(inventory.pools))}):
        pool, node = inventory.pools.get(device[:2]), devices.node_of(device)
        taints = () if pool is None else pool.taints_of(device.device)
        rows = [_of_slice(inventory, device, node, taint, slice_of[device]) for taint in taints]
        rows += [_of_rule(inventory, device, node, rule) for rule in rules.on(device)]
        found += rows or ([ListedTaint(device, node)] if untainted else [])
    return found


def notes_without_devices(inventory: Inventory) -> list[str]:
    """One note on all rules that select no published device: a node that is gone leaves such rules behind."""
    rules = [*_rules_without_devices(inventory)]
    if len(rules) < 2:
        return [f"rule {name} selects no published device" for name in rules]
    return [f"{len(rules)} rules select no published device: {first_names(rules)}"]


def _rules_without_devices(inventory: Inventory) -> Iterator[str]:
    """The rules that select no published device, by name."""
    for name, rule in sorted(inventory.rules.items()):
        if not is_published(inventory, DeviceNames.of(rule.selector, inventory.servers)):
            yield name


def rules_not_judged(inventory: Inventory) -> list[str]:
    """The rules that select by more than names."""
    rules = sorted(inventory.rules.items())
    return [name for name, rule in rules if rule.selector is not None and not can_judge(rule.selector)]


# --- rows ---------------------------------------------------------------------------------------


def _of_slice(inventory: Inventory, device: DeviceAddress, node: str, taint: DeviceTaint, name: str) -> ListedTaint:
    users = _users(inventory, device, Taint.of_slice(taint, in_tree=False))
    return ListedTaint(device, node, taint, TaintSource("slice", name), users=users)


def _of_rule(inventory: Inventory, device: DeviceAddress, node: str, rule: DeviceTaintRule) -> ListedTaint:
    annotations, evicts = rule.meta.annotations, rule.effective_effect == NO_EXECUTE
    said = condition_of(rule.conditions, EVICTION) or condition_of(rule.conditions, IN_TREE)
    users = _users(inventory, device, Taint.of_rule(rule, in_tree=False))
    return ListedTaint(
        device,
        node,
        rule.taint,
        _source(rule),
        annotations.get(EVICT) == "true",
        annotations.get(EXPIRES_AT, ""),
        annotations.get(DESCRIPTION, ""),
        said.reason if evicts and said is not None and said.observed_generation in (0, rule.generation) else "",
        # Without a selector it evicts no pod.
        () if rule.selector is None else users,
    )


def _source(rule: DeviceTaintRule) -> TaintSource:
    kind, name = ("patch", rule.origin.name) if rule.origin.patch else ("rule", rule.meta.name)
    return TaintSource(kind, name, rule.meta.name)


def _users(inventory: Inventory, device: DeviceAddress, taint: Taint) -> tuple[AffectedUser, ...]:
    """Who has the device, by its claims; a pod with several of these tolerates the taint if all of them do."""
    found: dict[tuple[str, str, str], bool] = {}
    for key in inventory.usage.claims_on(*device):
        claim = inventory.claims[key]
        results = [each for each in claim.allocation or () if (each.driver, each.pool, each.device) == tuple(device)]
        stays = all(_stays(inventory, each.tolerations, taint) for each in results)
        for consumer in claim.reserved_for:
            resource = "pods" if is_pod(consumer) else consumer.resource
            user = claim.meta.namespace, resource, consumer.name
            found[user] = found.get(user, True) and stays
    return tuple(AffectedUser(*user, stays) for user, stays in sorted(found.items()))


def _stays(inventory: Inventory, tolerations: tuple[DeviceToleration, ...], taint: Taint) -> bool:
    if taint.taint.effect == NO_EXECUTE:
        return taint.fate(inventory.servers, tolerations) == FOR_EVER
    return any(tolerates(each, taint.taint) for each in tolerations)


class _RulesByName:
    """Rules by the names that their selectors have, so that each device asks for eight combinations of these."""

    def __init__(self, inventory: Inventory) -> None:
        self._at: Mapping[_Names, list[DeviceTaintRule]] = _by_names(inventory)

    def on(self, device: DeviceAddress) -> list[DeviceTaintRule]:
        """Those that taint a device, by name."""
        driver, pool, name = device
        found: list[DeviceTaintRule] = []
        for first in (driver, None):
            for second in (pool, None):
                for third in (name, None):
                    found += self._at.get((first, second, third), ())
        return sorted(found, key=lambda rule: rule.meta.name)


def _by_names(inventory: Inventory) -> Mapping[_Names, list[DeviceTaintRule]]:
    found: dict[_Names, list[DeviceTaintRule]] = defaultdict(list)
    for rule in inventory.rules.values():
        found[DeviceNames.of(rule.selector, inventory.servers)].append(rule)
    return found
