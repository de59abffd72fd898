"""A cluster in the middle of a drain as a dump, and a runner of status over it."""

from __future__ import annotations

import json
from typing import Any

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_condition,
    make_consumer,
    make_device,
    make_meta,
    make_pod,
    make_rule,
    make_slice,
    make_taint,
    make_toleration,
)
from tests.unit.commands.preview_runner import used
from tests.unit.commands.runner import Runner
from webhook.commands.shared.main import main_of
from webhook.commands.status import command as status

SINCE = "2026-06-01T11:55:00Z"
OURS = {"type": "devicetaint.io/Eviction", "status": "True", "lastTransitionTime": SINCE}
EVICTED = {"type": "devicetaint.io/EvictedPods", "status": "True", "reason": "PodsEvicted", "message": "2"}
AN_HOUR = make_toleration(effect="NoExecute", seconds=3600)
RULE = make_rule(
    selector={"driver": DRIVER, "pool": "node-0"},
    taint=make_taint(time_added=SINCE),
    conditions=[
        make_condition(**OURS, reason="Blocked", message="2 pods evicted; 5 pods pending in 1 namespace; 1 blocked"),
        make_condition(**EVICTED),
    ],
    meta=make_meta("firmware", uid="uid-of-firmware", generation=1, annotations={"devicetaint.io/evict": "true"}),
)
IDLE = make_rule(
    selector={"driver": "other.example.com"},
    taint=make_taint(effect="NoExecute", time_added=SINCE),
    meta=make_meta("idle", uid="uid-of-idle", generation=1),
)
SLICES = [
    make_slice([make_device(f"gpu-{number}") for number in range(8)], meta=make_meta("node-0-gpu")),
    make_slice(
        [make_device("gpu-0", taints=[make_taint("hw.example.com/ecc", "NoExecute", time_added=SINCE)])],
        pool="node-1",
        node_name="node-1",
        meta=make_meta("node-1-gpu"),
    ),
]
CLAIMS = [
    used("train", "node-0/gpu-0"),
    used("train-held", "node-0/gpu-1"),
    used("train-late", "node-0/gpu-2", tolerations=[AN_HOUR]),
    used("web-0", "node-0/gpu-3"),
    used("db-0", "node-0/gpu-4"),
    used("db-1", "node-0/gpu-5"),
    used("ending", "node-0/gpu-6"),
    used("broken", "node-1/gpu-0", users=[make_consumer("broken")]),
]
PODS = [
    make_pod("train", "train"),
    make_pod("train-held", "train-held", meta={"annotations": {"devicetaint.io/hold": "checkpoint until noon"}}),
    make_pod("train-late", "train-late"),
    make_pod("web-0", "web-0", owner="ReplicaSet/web", meta={"labels": {"app": "web"}}),
    make_pod("db-0", "db-0", owner="StatefulSet/db"),
    make_pod("db-1", "db-1", owner="StatefulSet/db"),
    make_pod("ending", "ending", meta={"deletionTimestamp": "2026-06-01T12:00:20Z"}),
    make_pod("broken", "broken"),
    make_pod("bystander"),
]
for ready in PODS[3:5]:
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "ml", "generation": 1},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
    "status": {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 3,
        "desiredHealthy": 3,
        "conditions": [{"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": "2026-06-01T11:58:00Z"}],
    },
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
LEASE: dict[str, Any] = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
        "name": "device-taint-webhook-evict",
        "namespace": "device-taint-webhook",
        "annotations": {"devicetaint.io/mode": "observe", "devicetaint.io/in-tree": "absent"},
    },
    "spec": {"holderIdentity": "evict-7", "renewTime": "2026-06-01T11:59:58.000000Z"},
}
CLUSTER = [RULE, IDLE, *SLICES, *CLAIMS, *PODS, BUDGET, NAMESPACE]


class StatusRunner(Runner):
    """Writes a dump, runs status, returns exit code, output and errors."""

    verb = status

    def __call__(self, *words: str, dump: Any = CLUSTER, policy: Any = None) -> tuple[int, str, str]:
        flags = list(words)
        if dump is not None:
            flags += ["--dump", self.write("dump", dump), "--time", NOW_TEXT]
        if policy is not None:
            flags += ["--policy", self.write("policy", policy)]
        return self.said(main_of(self.verb, flags))

    def values(self, *words: str, **files: Any) -> Any:
        """The JSON of a run without fault."""
        code, output, error = self("-o", "json", *words, **files)
        assert (code, error) == (0, ""), output
        return json.loads(output)
