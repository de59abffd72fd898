"""A ward in the middle of a drain: one pod gone, one blocked by a budget, one held, one that tolerates for an hour."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.apiserver.evicting import GENTLE, EvictProcess, Ward
from tests.apiserver.registration.samples import OWN_NAMESPACE
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.names import WORKER
from webhook.api.pods import HOLD

AN_HOUR: Final = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
_LABELS: Final = {"app": "guarded"}
_SAID: Final = "1 pod evicted; 3 pods pending in 1 namespace; 1 blocked; 1 held; next due "


class Drain(NamedTuple):
    """The ward, and the rule that evicts from it."""

    plane: ControlPlane
    ward: Ward
    rule: str


@contextlib.contextmanager
def draining(plane: ControlPlane) -> Iterator[Drain]:
    """A worker in mode replacement with policy GENTLE is at work, and has reported."""
    # one that a worker of another test has given up would say that none is at work
    plane.client.delete(path("coordination.k8s.io/v1", "leases", namespace=OWN_NAMESPACE, name=WORKER))
    with Ward(plane.client) as ward, EvictProcess(plane, "replacement", policy=GENTLE) as process:
        process.wait_working()
        ward.admit("free")
        ward.admit("held", annotations={HOLD: "until noon"})
        ward.admit("guarded", labels=_LABELS)
        ward.admit("later", AN_HOUR)
        _guard(plane, ward)
        rule = ward.taint()
        wait_until(lambda: ward.condition(rule).get("message", "").startswith(_SAID), _SAID)
        yield Drain(plane, ward, rule)


def _guard(plane: ControlPlane, ward: Ward) -> None:
    """A budget that allows nothing; here no controller computes its status."""
    budgets = path("policy/v1", "poddisruptionbudgets", namespace=ward.name)
    budget = {"metadata": {"name": "guard"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}}
    generation = plane.client.create(budgets, budget).object["metadata"]["generation"]
    figures = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    _ = plane.client.patch(f"{budgets}/guard/status", {"status": {"observedGeneration": generation, **figures}}).object
