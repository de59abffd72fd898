"""Patches, the rules that they are expanded into, and a worker whose ceilings are by their confirmations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import structs

from tests.builders import DRIVER, KEY, NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import (
    CONFIRM_IMPACT,
    EVICTED_PODS,
    HARDWARE,
    SCOPE,
    SOFTENED_FROM,
    Condition,
    DeviceSelector,
    DeviceTaintRule,
    RuleOrigin,
)
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling
from webhook.inventory.targets import rule_name

PATCH: Final = "firmware"
POOL_0: Final = DeviceSelector(DRIVER, "node-0")
POOL_1: Final = DeviceSelector(DRIVER, "node-1")
TOGETHER: Final = f"ResourceSlicePatch {PATCH}, with all of its rules, hits"


def patch(
    name: str = PATCH,
    selector: DeviceSelector | None = DeviceSelector(driver=DRIVER),  # noqa: B008 -- frozen
    *taints: DeviceTaint,
    text: str = "",
    **fields: Any,
) -> ResourceSlicePatch:
    meta = ObjectMeta(name, uid=f"uid-{name}", annotations={CONFIRM_IMPACT: text} if text else {})
    return ResourceSlicePatch(meta, selector, taints=taints or (DeviceTaint(KEY, "", NO_EXECUTE),), **fields)


def of_patch(each: DeviceTaintRule, name: str = PATCH) -> DeviceTaintRule:
    """The rule as the controller writes it for a patch."""
    uid = f"uid-{name}"
    return structs.replace(each, origin=RuleOrigin(name, uid, patch=True, of_patch=uid))


def for_hardware(each: DeviceTaintRule, owner: str = "rule") -> DeviceTaintRule:
    """The rule as the controller writes it for the hardware of another one."""
    uid = f"uid-{owner}"
    return structs.replace(each, origin=RuleOrigin(owner, uid, rule=True, hardware_of=uid))


def owner_of_siblings(**fields: Any) -> DeviceTaintRule:
    """A rule for a pool whose hardware is to be closed as well."""
    annotations = {SCOPE: HARDWARE, **fields.pop("annotations", {})}
    return rule(selector=POOL_0, annotations=annotations, **fields)


def sibling(at: int, number: int = 1, **fields: Any) -> DeviceTaintRule:
    """A rule for a device, as the controller writes it for the hardware of rule `rule`."""
    selector = DeviceSelector(DRIVER, f"node-{number}", f"gpu-{at}")
    return for_hardware(rule(rule_name("rule", rule(**fields).taint, selector), selector=selector, **fields))


def part(number: int, *, name: str = "", softened: bool = False, patch: str = PATCH, **fields: Any) -> DeviceTaintRule:
    """A rule of a patch, for one pool, as the controller writes it unless it has another name."""
    if softened:
        fields |= {"effect": "NoSchedule", "evict": True, "annotations": {SOFTENED_FROM: NO_EXECUTE}}
    selector = DeviceSelector(DRIVER, f"node-{number}")
    name = name or rule_name(patch, rule(selector=selector, **fields).taint, selector)
    return of_patch(rule(name, selector=selector, **fields), patch)


def name_of(number: int, **fields: Any) -> str:
    """The name of such a rule."""
    return part(number, **fields).meta.name


def fill(world: World, *numbers: int, pods: int = 2, start: int = 0) -> None:
    """Pods with a device each in these pools."""
    for number in numbers:
        for at in range(start, start + pods):
            name = f"pod-{number}-{at}"
            world.add(claim(name, pool=f"node-{number}", devices=(f"gpu-{at}",)), pod(name))


def limited(
    limit: int,
    texts: Mapping[str, int] | None = None,
    mode: Mode = Mode.REPLACEMENT,
    *,
    pools: Iterable[int] = (),
    **fields: Any,
) -> World:
    """A worker with a limit on pods; texts that count allow other numbers in all, on patches as on rules.

    In each of the pools two devices are in use.
    """
    known = {} if texts is None else texts

    def ceiling(meta: ObjectMeta, each: DeviceTaintRule) -> Ceiling:
        text = meta.annotations.get(CONFIRM_IMPACT, "")
        if text in known:
            return Ceiling(known[text])
        return Ceiling(limit, confirmed=False, softened=each.softened)

    world = evicting(
        mode=mode,
        ceiling_of=lambda each: ceiling(each.meta, each),
        patch_ceiling_of=lambda each, whole: ceiling(ObjectMeta() if whole is None else whole.meta, each),
        **fields,
    )
    fill(world, *pools)
    return world


def two_stopped(texts: Mapping[str, int] | None = None, known: ResourceSlicePatch | None = None) -> World:
    """Two rules of a patch, which hit two pods each and may hit three, twenty seconds later."""
    world = limited(3, texts, pools=(0, 1))
    if known is not None:
        world.set_patch(known)
    world.add(part(0), part(1))
    world.advance(20)
    return world


def stopped(world: World, name: str) -> str:
    """Why the rule is stopped; empty if it is not."""
    status, reason, message = world.condition(name)
    return message if (status, reason) == ("False", "Stopped") else ""


def counted(number: int, kind: str = EVICTED_PODS) -> Condition:
    return Condition(kind, "True", "PodsEvicted" if kind == EVICTED_PODS else "PodsCounted", str(number), 1, NOW)


def drop(world: World, *names: str) -> None:
    """The controller deletes rules."""
    for name in names:
        world.remove(world.inventory.rules[name])
