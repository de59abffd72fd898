"""What an inventory holds of the values that the API's own decoders give: the measure of what comes off the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from webhook.api.claims import ResourceClaim, decode_stored_claim
from webhook.api.decode import Reader
from webhook.api.pods import Pod, PodGroup, decode_pod, decode_pod_group
from webhook.api.rules import DeviceTaintRule, decode_rule
from webhook.api.slices import Device, ResourceSlice, decode_slice

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.meta import ObjectMeta
    from webhook.inventory.state import InventoryObject


def _meta(meta: ObjectMeta) -> ObjectMeta:
    return structs.replace(meta, generate_name="", annotations={})


def _claim(reader: Reader) -> ResourceClaim:
    claim = decode_stored_claim(reader)
    return structs.replace(claim, meta=_meta(claim.meta))


def _slice(reader: Reader) -> ResourceSlice:
    """Of devices only what taints and counters are about; what is left of them is the same in all versions."""
    value = decode_slice(reader)
    return structs.replace(
        value,
        meta=_meta(value.meta),
        devices=tuple([Device(each.name, each.taints, counter_sets=each.counter_sets) for each in value.devices]),
        has_shared_counters=False,
        distinct_taints=(),
        raw_devices=None,
    )


def _pod(reader: Reader) -> Pod:
    pod = decode_pod(reader)
    return structs.replace(pod, meta=_meta(pod.meta))


def _pod_group(reader: Reader) -> PodGroup:
    group = decode_pod_group(reader)
    return structs.replace(group, meta=_meta(group.meta))


def _rule(reader: Reader) -> DeviceTaintRule:
    return decode_rule(reader)


_DECODE: Final[dict[str, Callable[[Reader], InventoryObject]]] = {
    "ResourceClaim": _claim,
    "ResourceSlice": _slice,
    "DeviceTaintRule": _rule,
    "Pod": _pod,
    "PodGroup": _pod_group,
}


def held(manifest: Any, kind: str = "") -> InventoryObject:
    """The value, which must be free of wrong types. The objects of a list do not say of what kind they are."""
    errors: list[Any] = []
    value = _DECODE[kind or manifest["kind"]](Reader.of(manifest, errors))
    assert errors == []
    return value
