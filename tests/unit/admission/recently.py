"""Rules and slices that were tainted a while ago, and a rule that is judged after them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.builders import NOW, decoded
from tests.unit.admission.guarding import ask, fleet, node, over, tainting
from tests.unit.inventory.values import inventory_of, pool_slice, taint
from webhook.api.slices import Device
from webhook.inventory.impact import Impact, Wave
from webhook.policy.model import ImpactLimits, ImpactSettings

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import InventoryObject


NODES = 8


def value(rule: Any) -> DeviceTaintRule:
    found: DeviceTaintRule = decoded(rule)[0]
    return found


def stored(number: int, *, seconds_ago: float = 60, effect: str = "NoExecute", **fields: Any) -> DeviceTaintRule:
    """A rule on one node."""
    added = NOW - timedelta(seconds=seconds_ago)
    return value(tainting(node(number), effect, name=f"stored-{number}", added=added, **fields))


def settings(window_seconds: float = 600, **numbers: Any) -> ImpactSettings:
    return ImpactSettings(limits=(ImpactLimits(**(numbers or {"pods": 2})),), window_seconds=window_seconds)


def reasons(
    *others: InventoryObject,
    rule: Any = None,
    old: Any = None,
    assumed: Any = (),
    victims: Any = (),
    closed: Any = (),
    **options: Any,
) -> list[str]:
    """Why a rule on node 0 is too much, with these rules and slices in the cluster."""
    cluster = inventory_of(*fleet(NODES, lambda number: f"ns-{number}"), *others)
    decision = ask(
        rule or tainting(node(0)),
        old,
        cluster=cluster,
        **{
            "assumed": tuple(assumed),
            "victims": tuple(victims),
            "closed": tuple(closed),
            "impact": settings(),
            **options,
        },
    )
    return over(decision)


def hit(*uids: str, namespace: str = "gone") -> Impact:
    everybody = frozenset(uids)
    return Impact(waves=(Wave(0, everybody, everybody),), namespaces=frozenset({namespace}))


def tainted(
    number: int, *, seconds_ago: float | None = 60, effect: str = "NoExecute", device: str = "gpu-0"
) -> InventoryObject:
    """A node's slice with a taint on one device; without seconds the taint has no time."""
    added = taint(effect, added=None if seconds_ago is None else NOW - timedelta(seconds=seconds_ago))
    devices = [Device(name, (added,) if name == device else ()) for name in ("gpu-0", "gpu-1")]
    return pool_slice(*devices, name=f"slice-{number}", pool=f"node-{number}")


def idle(number: int) -> dict[str, str]:
    """A selector of the unused device of a node."""
    return {**node(number), "device": "gpu-1"}


def one_of(effect: str, number: int = 0, *, unused: bool = False, **fields: Any) -> Any:
    name = f"rule-{number}"
    return tainting(idle(number) if unused else node(number), effect, name=name, **fields)
