"""A small cluster as a dump, and a runner of preview over it.

Two nodes with four devices each. Who uses them differs in what it tolerates.
"""

from __future__ import annotations

import json
from typing import Any

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_claim,
    make_consumer,
    make_device,
    make_meta,
    make_pod,
    make_rule,
    make_scheduler_claim,
    make_slice,
    make_taint,
    make_toleration,
)
from tests.unit.commands.runner import Runner
from webhook.commands.preview import command as preview
from webhook.commands.shared.main import main_of

ON_DRIVER = {"driver": DRIVER}
FOR_EVER = make_toleration(effect="NoExecute")
FIVE_MINUTES = make_toleration(effect="NoExecute", seconds=300)
ANY_EFFECT = make_toleration(effect=None)
UNUSED = "no eviction frees the devices of claims that are allocated and used by no pod: ml/idle"
"""A note on rules for all devices."""
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}


def rule(effect: str = "NoExecute", selector: Any = ON_DRIVER, **fields: Any) -> Any:
    """A rule that is set now."""
    return make_rule(selector=selector, taint=make_taint(effect=effect, time_added=None), **fields)


def pool_slice(node: str, devices: list[Any] | None = None, **spec: Any) -> Any:
    devices = devices or [make_device(f"gpu-{number}") for number in range(4)]
    return make_slice(devices, pool=node, node_name=node, meta=make_meta(f"{node}-gpu", resourceVersion="7"), **spec)


def used(
    name: str,
    *devices: str,
    users: list[Any] | None = None,
    tolerations: list[Any] | None = None,
    namespace: str = "ml",
    annotations: Any = None,
) -> Any:
    """A claim with these devices, `node/device`, used by the pod of its name unless told otherwise."""
    results = []
    for each in devices:
        node, _, device = each.partition("/")
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        results.append({**result, "tolerations": tolerations} if tolerations else result)
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [make_consumer(name)] if users is None else users,
    }
    claim = make_claim(meta=make_meta(name, namespace=namespace, annotations=annotations), status=status)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-of-{name}", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]  # made from a template for it
    return claim


def group_pod(name: str, group: str, claim: str) -> Any:
    return make_pod(name, claim, schedulingGroup={"podGroupName": group})


SLICES = [pool_slice("node-0"), pool_slice("node-1")]
CLAIMS = [
    used("train-0", "node-0/gpu-0", "node-0/gpu-1"),
    used("train-1", "node-1/gpu-0", tolerations=[FIVE_MINUTES]),
    used("serve", "node-0/gpu-2", tolerations=[FOR_EVER], namespace="web"),
    used("sloppy", "node-0/gpu-3", tolerations=[ANY_EFFECT], namespace="web"),
    make_scheduler_claim("extended", "node-1/gpu-1"),
    used("ending", "node-1/gpu-2"),
    used("gang", "node-1/gpu-3", users=[make_consumer("crew", **GROUP)]),
    used("idle", "node-1/gpu-3", users=[]),
]
PODS = [
    make_pod("train-0", "train-0", owner="Job/train", priority=100),
    make_pod("train-1", "train-1", owner="Job/train", priority=100),
    make_pod("serve", "serve", owner="ReplicaSet/serve-5d", priority=1000, namespace="web"),
    make_pod("sloppy", "sloppy", namespace="web"),
    make_pod("extended"),
    make_pod("ending", "ending", meta={"deletionTimestamp": NOW_TEXT}),
    group_pod("crew-0", "crew", "gang"),
    group_pod("crew-1", "crew", "gang"),
]
PODS[4]["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": CLAIMS[4]["metadata"]["name"]}
CLUSTER = [*SLICES, *CLAIMS, *PODS]
HEADER = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy"}
OUT_OF_TREE = {**HEADER, "inTreeEvictor": "absent"}


class PreviewRunner(Runner):
    """Writes a dump and what is asked about, runs preview, gives exit code and output."""

    def __call__(self, asked: Any, *words: str, dump: Any = CLUSTER, policy: Any = None) -> tuple[int, str]:
        flags = [self.write("asked", asked), "--time", NOW_TEXT, *words]
        if dump is not None:
            flags += ["--dump", self.write("dump", dump)]
        if policy is not None:
            flags += ["--policy", self.write("policy", policy)]
        return self.said(main_of(preview, flags))[:2]

    def told(self, asked: Any, *words: str, **files: Any) -> Any:
        """The one preview in the JSON output of a run without fault."""
        code, output = self(asked, "-o", "json", *words, **files)
        assert code == 0, output
        (only,) = json.loads(output)["previews"]
        return only


def squeezed(output: str) -> list[str]:
    """The lines, without the padding of columns."""
    return [" ".join(line.split()) for line in output.splitlines()]
