"""`preview` of a dump without Pods: a pod has all claims that are reserved for it, and needs devices for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.builders import DRIVER, make_consumer
from tests.unit.commands.impact_suites import CLASS
from tests.unit.commands.preview_runner import pool_slice, rule, used

if TYPE_CHECKING:
    from tests.unit.commands.preview_runner import PreviewRunner

SPARE: Final = [CLASS, pool_slice("node-0"), pool_slice("node-1"), used("train", "node-0/gpu-0")]


def test_pod_whose_other_claim_finds_no_device_finds_none(run_preview: PreviewRunner) -> None:
    asked = rule(selector={"driver": DRIVER, "pool": "node-0"})
    for user, none in (("train", 1), ("other", 0)):
        nic = used("nic", "node-0/nic-0", users=[make_consumer(user)])
        nic["status"]["allocation"]["devices"]["results"][0]["driver"] = "nic.example.com"
        nic["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "nic"
        (found,) = run_preview.told(asked, dump=[*SPARE, nic])["places"]
        assert (found["pods"], found["none"]) == (1, none)
