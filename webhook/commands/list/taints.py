"""Every taint of every device: where it comes from, since when, and which pods it concerns; as a table and as values.

A rule that selects by class or CEL is listed on each device that its names allow, since only its names are read here.
The structure of JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or changes its
meaning. docs/kubectl.md explains it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.impact_text import first_names
from webhook.api.meta import format_time
from webhook.api.rules import DATA, DESCRIPTION, EVICT, EXPIRES_AT, condition_of
from webhook.api.taints import NO_EXECUTE
from webhook.commands.shared.words import DeviceAddress
from webhook.eviction.conditions import EVICTION, IN_TREE
from webhook.files.report import shortened, table
from webhook.inventory.fates import DeviceNames
from webhook.inventory.holders import is_published
from webhook.inventory.impact import Taint
from webhook.inventory.matching import FOR_EVER, tolerates
from webhook.inventory.scope import can_judge
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from webhook.api.rules import DeviceTaintRule
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.commands.shared.node_devices import NodeDevices
    from webhook.inventory.state import Inventory

_Names = tuple[str | None, str | None, str | None]
VERSION: Final = 1
_NONE: Final = "<none>"
_PODS_SHOWN: Final = 3
_HEADERS: Final = ("NAME", "TAINT", "EFFECT", "SOURCE", "AGE", "PODS")
_WIDE: Final = ("NODE", "RULE", "EVICTION", "EXPIRES", "REASON", "DATA")
_DATA_SHOWN: Final = 64


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
    data: str = ""

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
    rules = [
        name
        for name, rule in sorted(inventory.rules.items())
        if not is_published(inventory, DeviceNames.of(rule.selector, inventory.servers))
    ]
    if len(rules) < 2:
        return [f"rule {name} selects no published device" for name in rules]
    return [f"{len(rules)} rules select no published device: {first_names(rules)}"]


def rules_not_judged(inventory: Inventory) -> list[str]:
    """The rules that select by more than names."""
    rules = sorted(inventory.rules.items())
    return [name for name, rule in rules if rule.selector is not None and not can_judge(rule.selector)]


# --- rows ---------------------------------------------------------------------------------------


def _of_slice(inventory: Inventory, device: DeviceAddress, node: str, taint: DeviceTaint, name: str) -> ListedTaint:
    users = _users(inventory, device, Taint.of_slice(taint, in_tree=True))
    return ListedTaint(device, node, taint, TaintSource("slice", name), users=users)


def _of_rule(inventory: Inventory, device: DeviceAddress, node: str, rule: DeviceTaintRule) -> ListedTaint:
    annotations, evicts = rule.meta.annotations, rule.effective_effect == NO_EXECUTE
    said = condition_of(rule.conditions, EVICTION) or condition_of(rule.conditions, IN_TREE)
    users = _users(inventory, device, Taint.of_rule(rule, in_tree=True))
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
        annotations.get(DATA, ""),
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


def table_text(
    rows: Sequence[ListedTaint], now: datetime, *, wide: bool = False, headers: bool = True, removed: bool = False
) -> str:
    """Columns as kubectl prints them; empty for no rows. `removed`: these taints are gone."""
    titles = (*_HEADERS, *(_WIDE if wide else ()))
    cells = [_cells(each, now, wide=wide, removed=removed) for each in rows]
    return "".join(f"{line}\n" for line in table(cells, headers=titles if headers else ()))


def names_text(rows: Sequence[ListedTaint]) -> str:
    """The devices, as other verbs take them, each once."""
    return "".join(f"{device}\n" for device in dict.fromkeys(each.device for each in rows))


def values_of(rows: Sequence[ListedTaint], now: datetime, notes: Sequence[str]) -> dict[str, Any]:
    """The structure behind JSON and YAML."""
    return {
        "version": VERSION,
        "time": format_time(now),
        "devices": [_device_values(list(group)) for _, group in groupby(rows, key=lambda each: each.device)],
        "notes": list(notes),
    }


def _cells(row: ListedTaint, now: datetime, *, wide: bool, removed: bool) -> list[str]:
    device, taint, source = str(row.device), row.taint, row.source
    if taint is None or source is None:
        cells = [device, _NONE, _NONE, _NONE, _NONE, _pods(row.users, wide=wide)]
        return [*cells, *([row.node or _NONE, *[_NONE] * 5] if wide else [])]
    name = f"{taint.key}={taint.value}" if taint.value else taint.key
    effect = "<removed>" if removed else f"{taint.effect},evict" if row.evict else taint.effect
    cells = [device, name, effect, str(source), age(taint.time_added, now), _pods(row.affected, wide=wide)]
    if wide:
        more = (row.node, source.rule, row.eviction, row.expires, row.reason, shortened(row.data, _DATA_SHOWN))
        cells += [each or _NONE for each in more]
    return cells


def _pods(users: Sequence[AffectedUser], *, wide: bool) -> str:
    """As kubectl shows endpoints: the first ones, and how many more there are."""
    shown = users if wide else users[:_PODS_SHOWN]
    text = ",".join(map(str, shown)) or _NONE
    return f"{text} + {len(users) - len(shown)} more..." if len(shown) < len(users) else text


def _device_values(rows: Sequence[ListedTaint]) -> dict[str, Any]:
    device = rows[0].device
    return {
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "node": rows[0].node or None,
        "taints": [_taint_values(each) for each in rows if each.taint is not None],
    }


def _taint_values(row: ListedTaint) -> dict[str, Any]:
    taint, source = row.taint, row.source
    assert taint is not None
    assert source is not None
    return {
        "key": taint.key,
        "value": taint.value or None,
        "effect": taint.effect,
        "evict": row.evict,
        "timeAdded": None if taint.time_added is None else format_time(taint.time_added),
        "source": {"kind": source.kind, "name": source.name, "rule": source.rule or None},
        "eviction": row.eviction or None,
        "expiresAt": row.expires or None,
        "reason": row.reason or None,
        "data": row.data or None,
        "users": [
            {"namespace": each.namespace, "resource": each.resource, "name": each.name, "tolerates": each.tolerates}
            for each in row.users
        ],
    }


# --- ages -----------------------------------------------------------------------------------------


_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
UNKNOWN: Final = "<unknown>"
_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below the first number of seconds: the unit, its letter, the smaller unit that is added (0: none), and its letter."""


def age(since: datetime | None, now: datetime) -> str:
    """The time since then: `45s`, `5m30s`, `90m`, `3h20m`, `2d`; `<unknown>` without one."""
    return UNKNOWN if since is None else human_duration(int((now - since).total_seconds()))


def human_duration(seconds: int) -> str:
    """A duration in whole seconds; a clock that is behind by a second does no harm."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for below, unit, letter, smaller, small_letter in _STEPS:
        if seconds < below:
            rest = seconds % unit // smaller if smaller else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{seconds // _YEAR}y"
