"""`preview` as text, whole: this is what people read before they set a taint."""

from __future__ import annotations

import json
from typing import Any

from tests.builders import make_device, make_meta, make_taint
from tests.unit.commands.preview_runner import (
    CLAIMS,
    FIVE_MINUTES,
    SLICES,
    UNUSED,
    PreviewRunner,
    pool_slice,
    rule,
    used,
)

EVICT = {"devicetaint.io/evict": "true"}
HIT = make_taint(effect="NoExecute", time_added=None)
NO_DRY_RUN = (
    "no dry run: a dump does not tell who would write the rule, and so not whether it must be confirmed\n"
    "to confirm this impact, add this annotation:\n"
)
LAST_DEVICE = (
    "asked.yaml:7:5: warning: spec.deviceSelector: leaves driver gpu.example.com no device without a taint: claims for "
    "its devices wait, unless they tolerate [DT204]\n"
)


def test_a_rule_that_evicts(run_preview: PreviewRunner) -> None:
    assert run_preview(rule()) == (
        0,
        f"""\
asked.yaml:1:1: DeviceTaintRule unhealthy-gpu: gpu.example.com/unhealthy:NoExecute on driver gpu.example.com
{LAST_DEVICE}\
  devices         8 in 2 pools of 1 driver; 9 allocated
  evicted         4 pods
    now           3 pods
    after 5 min   1 pod
  extended        1 pod of these with extended resources: the in-tree controller evicts such pods from 1.37.2 on; \
before, it leaves them alone
  places          it is not known whether 4 pods would find other devices: DeviceClasses are not known
  claims          5 in 2 namespaces: ml, web
  tolerate        1 pod
  leaving         1 pod, terminating or finished, and not counted
  PodGroup        ml/crew: evicted now; 2 pods known, not counted above
  evictor         the in-tree controller
  note: {UNUSED}

POD           OWNER                 PRIORITY   DEVICES              WHEN          WHY
ml/extended   -                            0   node-1/gpu-1         now           uses it through an extended resource
ml/train-0    Job/train                  100   node-0/gpu-0,gpu-1   now           no toleration
web/sloppy    -                            0   node-0/gpu-3         now           gpu.example.com/unhealthy op=Exists: \
sets no effect, but the in-tree controller requires NoExecute
ml/train-1    Job/train                  100   node-1/gpu-0         after 5 min   gpu.example.com/unhealthy:NoExecute \
op=Exists for 300s
web/serve     ReplicaSet/serve-5d       1000   node-0/gpu-2         tolerates     gpu.example.com/unhealthy:NoExecute \
op=Exists
ml/ending     -                            0   node-1/gpu-2         terminating   already leaving

{NO_DRY_RUN}  devicetaint.io/confirm-impact: "v1 devices=8 claims=6 pods=5 namespaces=2 unknown=1 of=wruuxq7qkscsnayc"
""",
    )


def test_a_rule_that_asks_our_worker_without_pods_in_the_dump(run_preview: PreviewRunner) -> None:
    """Our worker reads an empty effect as all, and leaves who would come back."""
    given = rule("NoSchedule", annotations=EVICT)
    assert run_preview(given, dump=[*SLICES, *CLAIMS]) == (
        0,
        f"""\
asked.yaml:1:1: DeviceTaintRule unhealthy-gpu: gpu.example.com/unhealthy:NoSchedule on driver gpu.example.com
{LAST_DEVICE.replace(":7:", ":9:")}\
  devices         8 in 2 pools of 1 driver; 9 allocated
  evicted         4 pods
    now           3 pods
    after 5 min   1 pod
  places          it is not known whether 4 pods would find other devices: DeviceClasses are not known
  claims          5 in 1 namespace: ml
  tolerate        2 pods
  PodGroup        ml/crew: evicted now; its pods are unknown, not counted above
  evictor         device-taint-webhook evict, because of annotation devicetaint.io/evict
  note: {UNUSED}
  note: the dump has no Pods, so it is unknown who owns them, their priorities, and which are terminating or finished

POD           DEVICES              WHEN          WHY
ml/ending     node-1/gpu-2         now           no toleration
ml/extended   node-1/gpu-1         now           no toleration
ml/train-0    node-0/gpu-0,gpu-1   now           no toleration
ml/train-1    node-1/gpu-0         after 5 min   gpu.example.com/unhealthy:NoExecute op=Exists for 300s
web/serve     node-0/gpu-2         tolerates     gpu.example.com/unhealthy:NoExecute op=Exists
web/sloppy    node-0/gpu-3         tolerates     gpu.example.com/unhealthy op=Exists: a replacement would land on the \
same device

{NO_DRY_RUN}  devicetaint.io/confirm-impact: "v1 devices=8 claims=5 pods=4 namespaces=1 unknown=1 of=odjkwn74w626x7fx"
""",
    )


def test_a_slice_with_new_taints(run_preview: PreviewRunner) -> None:
    harmless = make_taint(key="a.example.com/b", effect="None")
    asked = pool_slice("node-0", [make_device("gpu-0", [HIT, harmless]), make_device("gpu-2", [HIT])])
    assert run_preview(asked) == (
        0,
        """\
asked.yaml:1:1: ResourceSlice node-0-gpu: gpu.example.com/unhealthy:NoExecute new on 2 devices of pool \
gpu.example.com/node-0
  devices    2 in 1 pool of 1 driver; 2 allocated
  evicted    1 pod
    now      1 pod
  places     it is not known whether 1 pod would find other devices: DeviceClasses are not known
  claims     1 in 1 namespace: ml
  tolerate   1 pod
  evictor    the in-tree controller
  note: taints that do nothing are left out: a.example.com/b:None

POD          OWNER                 PRIORITY   DEVICES        WHEN        WHY
ml/train-0   Job/train                  100   node-0/gpu-0   now         no toleration
web/serve    ReplicaSet/serve-5d       1000   node-0/gpu-2   tolerates   gpu.example.com/unhealthy:NoExecute op=Exists
""",
    )


# --- many ---------------------------------------------------------------------------------------


def many(count: int) -> list[Any]:
    return [used(f"c{number:04}", "node-0/gpu-0", namespace=f"ns-{number % 9}") for number in range(count)]


def test_long_tables_are_cut_and_json_is_not(run_preview: PreviewRunner) -> None:
    _, output = run_preview(rule(), "--limit", "3", dump=[*SLICES, *many(250)])
    assert "in 9 namespaces: ns-0, ns-1, ns-2, ns-3, ns-4 and 4 more\n" in output
    assert output.count("no toleration\n") == 3
    assert "and 247 more; --limit 0 shows all\n" in output
    _, output = run_preview(rule(), "--limit", "0", dump=[*SLICES, *many(250)])
    assert output.count("no toleration\n") == 250
    assert len(run_preview.told(rule(), dump=[*SLICES, *many(250)])["pods"]) == 250


def test_many_waves_are_drawn_together(run_preview: PreviewRunner) -> None:
    claims = [
        used(f"c{seconds}", "node-0/gpu-0", tolerations=[{**FIVE_MINUTES, "tolerationSeconds": seconds}])
        for seconds in (0, 30, 60, 90, 3600, 7200, 86400)
    ]
    _, output = run_preview(rule(), dump=[*SLICES, *claims])
    waves = [line.strip().partition("   ")[0] for line in output.splitlines() if line.startswith("    ")]
    assert waves == ["now", "after 30 s", "after 1 min", "after 90 s", "after 1 h", "until 1 d"]


def test_every_object_of_a_file_is_told(run_preview: PreviewRunner) -> None:
    asked = [rule(meta=make_meta("a")), {"apiVersion": "v1", "kind": "List", "items": [rule(meta=make_meta("b"))]}]
    code, output = run_preview(asked, "-o", "json")
    assert (code, [each["name"] for each in json.loads(output)["previews"]]) == (0, ["a", "b"])
    _, output = run_preview(asked)
    assert 'of=4q3f2jp5vn57o374"\n\nasked.yaml:15:3: DeviceTaintRule b: ' in output
