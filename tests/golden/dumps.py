"""Clusters that are made from a seed, as manifests: devices, taints, claims, pods, patches and a policy."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from tests.builders import DRIVER, make_condition, make_consumer, make_meta, make_pod, make_rule, make_taint
from tests.golden import reviews
from tests.unit.commands.preview_runner import pool_slice, used

# By name: another sample would change every digest.
POLICIES: Final = [
    Path(__file__).parents[2] / "manifests" / "policies" / name / "policy.yaml"
    for name in (
        "ci-cluster",
        "dedicated",
        "driver-operator",
        "inference-platform",
        "managed-cluster",
        "reactions",
        "research-cluster",
    )
]
NODES: Final = ("node-0", "node-1", "node-2")
_SINCE: Final = "2026-06-01T11:55:00Z"
_REASONS: Final = ("Evicting", "Blocked", "Limited", "Completed", "Waiting")


class Dump:
    """The objects of one cluster."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.policy = POLICIES[seed % len(POLICIES)]
        self.slices = [self._slice(node) for node in NODES]
        self.claims: list[Any] = []
        self.pods: list[Any] = []
        for number in range(self.rng.randint(3, 9)):
            self._occupy(number)
        self.rules = [self._rule(number) for number in range(self.rng.randint(0, 3))]
        self.templates = [self._named(reviews.template(self.rng), f"template-{at}") for at in range(2)]
        self.patches = [self._named(reviews.patch(self.rng), f"patch-{at}") for at in range(self.rng.randint(0, 2))]
        self.classes = [self._class(name, at) for at, name in enumerate(reviews.CLASSES[:2])]
        self.budgets = [self._budget()] if self.rng.random() < 0.5 else []
        self.namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": make_meta(name, labels={"team": name})}
            for name in reviews.NAMESPACES
        ]

    @property
    def objects(self) -> list[Any]:
        """All of them."""
        found = (*self.slices, *self.claims, *self.pods, *self.rules, *self.templates, *self.patches)
        return [*found, *self.classes, *self.budgets, *self.namespaces, self.config_map]

    @property
    def config_map(self) -> Any:
        """With the policy in use."""
        meta = make_meta("device-taint-webhook-policy", namespace="device-taint-webhook")
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"policy.yaml": self.policy.read_text()},
        }

    def candidate(self) -> Any:
        """A taint that somebody thinks of."""
        return self.rng.choice((self._rule(9), reviews.patch(self.rng), reviews.rule(self.rng)))

    def _slice(self, node: str) -> Any:
        devices = []
        for place in range(self.rng.randint(1, 3)):
            taints = [make_taint(time_added=_SINCE)] if self.rng.random() < 0.2 else []
            device = {"name": f"gpu-{place}", "attributes": {"place": {"int": place}}}
            devices.append(device | ({"taints": taints} if taints else {}))
        return pool_slice(node, devices)

    def _occupy(self, number: int) -> None:
        rng, name = self.rng, f"pod-{number}"
        namespace = rng.choice(reviews.NAMESPACES)
        chosen = rng.choice(self.slices)["spec"]
        place = f"{chosen['nodeName']}/{rng.choice(chosen['devices'])['name']}"
        tolerations = reviews.some(rng, reviews.toleration, 2)
        users = [] if rng.random() < 0.1 else [make_consumer(name)]
        self.claims.append(used(name, place, namespace=namespace, tolerations=tolerations, users=users))
        meta = {"annotations": {"devicetaint.io/hold": "debugging"}} if rng.random() < 0.15 else {}
        owner = rng.choice((None, "ReplicaSet/web", "DaemonSet/agent"))
        phase = rng.choice(("Running", "Running", "Running", "Succeeded"))
        self.pods.append(
            make_pod(
                name,
                name,
                namespace=namespace,
                owner=owner,
                phase=phase,
                priority=rng.choice((None, 0, 100)),
                meta=meta,
            )
        )

    def _rule(self, number: int) -> Any:
        rng = self.rng
        reason = rng.choice(_REASONS)
        conditions = [
            make_condition(
                type="devicetaint.io/Eviction",
                status="False" if reason == "Completed" else "True",
                reason=reason,
                message="1 pod evicted",
                lastTransitionTime=_SINCE,
            )
        ]
        return make_rule(
            selector={"driver": DRIVER, **rng.choice(({}, {"pool": "node-0"}, {"pool": "node-1", "device": "gpu-0"}))},
            taint=make_taint(rng.choice(reviews.KEYS), rng.choice(reviews.EFFECTS), time_added=_SINCE),
            conditions=conditions if rng.random() < 0.7 else None,
            meta=make_meta(
                f"rule-{number}",
                uid=f"uid-of-rule-{number}",
                generation=1,
                resourceVersion="5",
                **reviews.marks(rng),
            ),
        )

    def _named(self, manifest: Any, name: str) -> Any:
        meta = {key: value for key, value in manifest["metadata"].items() if key != "generateName"}
        return {**manifest, "metadata": {**meta, "name": name, "uid": f"uid-of-{name}", "generation": 1}}

    def _class(self, name: str, number: int) -> Any:
        spec = {"selectors": [{"cel": {"expression": reviews.EXPRESSIONS[number]}}]}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": make_meta(name), "spec": spec}

    def _budget(self) -> Any:
        status = {"disruptionsAllowed": self.rng.choice((0, 1)), "observedGeneration": 1}
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": make_meta("all", namespace="ml"),
            "spec": {"maxUnavailable": 1, "selector": {}},
            "status": {**status, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }
