"""Slices, claims, pods and rules as the inventory holds them; a field has a default unless a test is about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from tests.builders import DRIVER, KEY, NOW
from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Owner, Pod, PodClaim
from webhook.api.rules import EVICT, Condition, DeviceSelector, DeviceTaintRule
from webhook.api.slices import Device, ResourceSlice
from webhook.api.taints import DeviceTaint, DeviceToleration

POOL: Final = "node-0"


def taint(effect: str = "NoExecute", key: str = KEY, value: str = "", added: datetime | None = NOW) -> DeviceTaint:
    return DeviceTaint(key, value, effect, added)


def tolerates(seconds: int | None = None, effect: str = "NoExecute", key: str = KEY) -> DeviceToleration:
    return DeviceToleration(key, "Exists", "", effect, seconds)


def slice_of(
    devices: Mapping[str, tuple[DeviceTaint, ...]], *, name: str = "slice", generation: int = 1, pool: str = POOL
) -> ResourceSlice:
    listed = tuple([Device(device, taints) for device, taints in devices.items()])
    meta = ObjectMeta(name=name, uid=f"uid-{name}")
    return ResourceSlice(meta, DRIVER, pool, generation, 1, pool, listed, has_devices=True)


def claim(
    name: str = "pod",
    *tolerations: DeviceToleration,
    devices: tuple[str, ...] = ("gpu-0",),
    consumers: tuple[Consumer, ...] | None = None,
    namespace: str = "ml",
    owner: str | None = None,
    group: str = "",
    pool: str = POOL,
    extended: bool = False,
) -> ResourceClaim:
    """An allocated claim named `<name>-claim`, made for and reserved for the pod of that name unless told otherwise."""
    results = tuple([AllocationResult("gpu", DRIVER, pool, device, tolerations) for device in devices])
    uid = f"uid-{name}"
    return ResourceClaim(
        ObjectMeta(name=f"{name}-claim", namespace=namespace, uid=f"{uid}-claim"),
        allocation=results if devices else None,
        reserved_for=(Consumer("", "pods", name, uid),) if consumers is None else consumers,
        extended_resource=extended,
        controller_uid=uid if owner is None else owner,
        pod_group=group,
    )


def pod(name: str = "pod", **fields: Any) -> Pod:
    """A running pod with a claim made for it."""
    given = {
        "meta": ObjectMeta(name=name, namespace=fields.pop("namespace", "ml"), uid=fields.pop("uid", f"uid-{name}")),
        "node_name": "node-0",
        "claims": (PodClaim(f"{name}-claim", generated=True),),
        "phase": "Running",
        "ready": fields.get("phase", "Running") == "Running",
    }
    return Pod(**{**given, **fields})


def owned(name: str, by: str = "rs", kind: str = "ReplicaSet", **fields: Any) -> Pod:
    return pod(name, owner=Owner(kind, by, f"uid-{by}"), **fields)


def using(
    *names: str,
    make: Callable[..., Pod] = pod,
    on: str = "gpu-0",
    pool: str = POOL,
    after: int | None = None,
    **fields: Any,
) -> list[ResourceClaim | Pod]:
    """Pods with these fields and a claim each. `on`: their device, in which `{}` is the name of the pod.

    `after`: how many seconds they tolerate each taint.
    """
    tolerations = () if after is None else (tolerates(after),)
    made = [(claim(name, *tolerations, devices=(on.format(name),), pool=pool), make(name, **fields)) for name in names]
    return [each for pair in made for each in pair]


def users(*names: str) -> tuple[Consumer, ...]:
    """Pods of these names, for which a claim is reserved."""
    return tuple([Consumer("", "pods", name, f"uid-{name}") for name in names])


def sharers(*names: str, make: Callable[..., Pod] = pod) -> list[ResourceClaim | Pod]:
    """A claim, and the pods that use it."""
    shared = (PodClaim("shared-claim"),)
    return [claim("shared", owner="", consumers=users(*names)), *[make(name, claims=shared) for name in names]]


def crowd(count: int, **fields: Any) -> list[ResourceClaim | Pod]:
    """So many pods with a device each; the devices are named after them."""
    return using(*[f"pod-{number:03}" for number in range(count)], on="{}", **fields)


def rule(
    name: str = "rule",
    effect: str = "NoExecute",
    *,
    selector: DeviceSelector | None = DeviceSelector(driver=DRIVER),  # noqa: B008 -- frozen
    evict: bool = False,
    added: datetime | None = NOW,
    key: str = KEY,
    conditions: tuple[Condition, ...] = (),
    annotations: Mapping[str, str] | None = None,
    uid: str = "",
    generation: int = 1,
    deleting: bool = False,
) -> DeviceTaintRule:
    given = {**({EVICT: "true"} if evict else {}), **(annotations or {})}
    meta = ObjectMeta(name=name, uid=uid or f"uid-{name}", annotations=given)
    return DeviceTaintRule(meta, selector, taint(effect, key, added=added), conditions, generation, deleting)


def asking(**fields: Any) -> DeviceTaintRule:
    """A rule that closes its devices and asks for eviction."""
    return rule(effect="NoSchedule", evict=True, **fields)
