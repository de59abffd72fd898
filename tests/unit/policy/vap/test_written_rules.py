"""Rules that the patch controller writes: exported policies pass those that the webhook does not judge again."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import make_rule
from tests.match_conditions import holds
from tests.tables import table
from tests.unit.policy.documents import make_entry, policy_of
from webhook.policy.vap.export import export

ACCOUNT: Final = "system:serviceaccount:taints:device-taint-patch"


def owned(kind: str, group: str, *, controls: bool = True) -> dict[str, Any]:
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "firmware", "uid": "u1"}
    return {"ownerReferences": [owner | ({"controller": True} if controls else {})]}


PATCH: Final = owned("ResourceSlicePatch", "devicetaint.io")
RULES: Final = {
    "of a patch": (PATCH, ACCOUNT, False),
    "for the hardware of a rule": (owned("DeviceTaintRule", "resource.k8s.io"), ACCOUNT, False),
    "of a patch, by somebody else": (PATCH, "system:serviceaccount:other:device-taint-patch", True),
    "of a reaction": ({}, ACCOUNT, True),
    "with an owner that does not control it": (
        owned("ResourceSlicePatch", "devicetaint.io", controls=False),
        ACCOUNT,
        True,
    ),
    "of another kind": (owned("ResourceSlice", "resource.k8s.io"), ACCOUNT, True),
    "of a patch of another group": (owned("ResourceSlicePatch", "resource.k8s.io"), ACCOUNT, True),
}


@table("meta, user, judged", RULES)
def test_taints_and_guard_judge_rules_of_the_patch_controller_only_if_nothing_controls_them(
    meta: dict[str, Any], user: str, *, judged: bool
) -> None:
    policy = policy_of(taintRules=[make_entry("no", match={"taints": {"effects": ["NoExecute"]}})])
    made = export(policy, namespace="taints")
    specs = {
        each["metadata"]["name"].rpartition("-")[2]: each["spec"]
        for each in made.objects
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    rule = make_rule(meta={"name": "firmware-a", **meta})
    for name in ("taints", "guard"):
        conditions = [each["expression"] for each in specs[name]["matchConditions"]]
        assert all(holds(each, rule, None, user) for each in conditions) is judged, name
