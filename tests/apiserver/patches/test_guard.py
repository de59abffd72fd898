"""Patches under limits: refused with figures, confirmed, softened; and ways around the guard that are none."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import OWN_NAMESPACE
from tests.apiserver.objects import RULES, SLICES, allocate, claim_of, rule_for, slice_of
from tests.apiserver.patches.serving import CONTROLLER, install_patches, judging, text_in
from tests.apiserver.patches.values import COLLECTION, VERSION
from tests.apiserver.patching import PatchProcess
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage, hash_of, health, make_policy
from tests.controlplane.client import Client, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from tests.selectors.hostile import bomb, hostile, long, towers
from webhook.api.patches import SOFTENED_KEYS
from webhook.api.rules import CONFIRM_IMPACT, EVICT, PATCH_LABEL, SOFTENED_FROM

Json = dict[str, Any]

NODES: Final = 12
DRIVER: Final = "gpu.example.com"
KEY: Final = "gpu.example.com/unhealthy"
NAMESPACE: Final = "ml"
CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
CLASSES: Final = path(f"{GROUP}/v1", "deviceclasses")
GROUPS: Final = ("system:authenticated",)
OPERATOR: Final = "operator"
POLICY: Final = make_policy(
    impact={
        "limits": [{"requesters": {"users": [OPERATOR]}, "action": "soften", "pods": 5}, {"pods": 5}],
        "window": "10m",
    }
)
USED: Final = {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].place == 0'}}]}
"""A filter of the first device of each node: a pod is on it."""


@pytest.fixture(scope="module")
def crowded(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Nodes with two devices each, of which a pod uses the first; the kind; and the webhook, not running yet."""
    with own_stage(request, since=37, audit=True) as stage:
        install_patches(stage, "Group", *GROUPS)
        _populate(stage.client)
        _ = stage.write_policy(yaml.safe_dump(POLICY)).object
        yield stage


def _populate(client: Client) -> None:
    spec = {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].place == 1'}}]}
    manifest = {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": "spare"}, "spec": spec}
    _ = client.create(CLASSES, manifest).object
    manifest = {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}}
    _ = client.create(CLASSES, manifest).object
    if not client.get(path("v1", "namespaces", name=NAMESPACE)).ok:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        _ = client.create(path("v1", "namespaces"), manifest).object
    for number in range(NODES):
        _ = client.create(SLICES, _slice(number)).object
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{number}", "uid": f"uid-{number}", "controller": True}
        _ = client.create(CLAIMS, claim_of("any", name=f"c-{number}", ownerReferences=[owner])).object
        allocate(client, CLAIMS, f"c-{number}", driver=DRIVER, pool=f"node-{number}", device="gpu-0")


def _slice(number: int) -> Json:
    devices = [{"name": f"gpu-{place}", "attributes": {"place": {"int": place}}} for place in range(2)]
    return slice_of(DRIVER, f"node-{number}", *devices)


@pytest.fixture
def guarded(crowded: Stage) -> Iterator[Stage]:
    """Called by the API server; it remembers nothing of the test before."""
    with judging(crowded):
        yield crowded
    for collection in (COLLECTION, RULES):
        assert crowded.client.delete(collection).ok


def of(stage: Stage, user: str = "dana") -> Client:
    return stage.client.acting_as(user, GROUPS)


def make_patch(filter_: Json, name: str = "firmware", effect: str = "NoExecute", **fields: Any) -> Json:
    text = fields.pop("text", None)
    return {
        "apiVersion": VERSION,
        "kind": "ResourceSlicePatch",
        "metadata": {"name": name, "annotations": {} if text is None else {CONFIRM_IMPACT: text}},
        "spec": {"devices": {"filter": filter_, "taints": [{"key": KEY, "effect": effect}], **fields}},
    }


def make_rule(patch: Json | None, selector: Json, name: str = "part", **metadata: Any) -> Json:
    """A rule as the controller writes it for a stored patch, at the time of its taint."""
    marks: Json = {}
    taint = {"key": KEY, "effect": "NoExecute"}
    if patch is not None:
        taint = dict(patch["spec"]["devices"]["taints"][0])
        uid = patch["metadata"]["uid"]
        reference = {"apiVersion": VERSION, "kind": "ResourceSlicePatch", "name": patch["metadata"]["name"], "uid": uid}
        marks = {"labels": {PATCH_LABEL: uid}, "ownerReferences": [{**reference, "controller": True}]}
    return rule_for(selector, taint, name, **marks, **metadata)


def node(number: int) -> Json:
    return {"driver": DRIVER, "pool": f"node-{number}"}


# --- limits ----------------------------------------------------------------------------------------


def test_patch_over_the_limit_is_refused_and_can_be_confirmed(guarded: Stage) -> None:
    refused = of(guarded).create(COLLECTION, make_patch(USED))
    assert refused.code == 403
    assert (
        "spec.devices.filter: Forbidden: hits 12 devices, 12 pods in 1 namespace: the limit is 5 pods"
        in refused.message
    )
    assert not guarded.client.get(f"{COLLECTION}/firmware").ok
    text = text_in(refused)
    assert not of(guarded).create(COLLECTION, make_patch(USED, "another", text=text)).ok
    stored = of(guarded).create(COLLECTION, make_patch(USED, text=text))
    assert stored.ok, stored.message
    figures = "selects 12 devices in 12 pools; evicts 12 pods in 1 namespace, all at once"
    assert [text for text in stored.warnings if figures in text], stored.warnings
    audited = guarded.audited("patches.validate.devicetaint.io", "create", f"{COLLECTION}/firmware")
    assert "pods=12" in audited["impact"]
    assert audited["impact"].endswith("over=limit:pods confirmed")


@pytest.mark.whole
def test_rules_are_refused_with_figures_beside_hostile_selectors(guarded: Stage) -> None:
    """The API server asks about all of them at once; each is answered by us, and no probe goes without an answer."""
    texts = [make(seed) for seed in range(3) for make in (bomb, long, towers, hostile)]
    hostile_ones = [
        make_patch({"selectors": [{"cel": {"expression": text}}]}, f"hostile-{number}")
        for number, text in enumerate(texts)
    ]
    with ThreadPoolExecutor(len(texts)) as clients:
        sent = [clients.submit(of(guarded, "mallory").create, COLLECTION, each) for each in hostile_ones]
        for _ in range(10):
            refused = of(guarded).create(RULES, make_rule(None, {"driver": DRIVER}))
            assert "hits 24 devices, 12 pods in 1 namespace: the limit is 5 pods" in refused.message
            assert health(guarded.webhook, "livez")[0] == 200
        replies = [each.result() for each in sent]
    assert [each.message for each in replies if "failed calling webhook" in each.message] == []
    assert {each.code for each in replies} <= {201, 403, 422, 504}


@pytest.mark.whole
def test_patch_by_class_hits_what_is_in_the_class(guarded: Stage) -> None:
    reply = of(guarded).create(COLLECTION, make_patch({"deviceClassName": "spare"}, effect="NoSchedule"))
    assert reply.ok, reply.message
    assert [text for text in reply.warnings if "keeps 12 devices in 12 pools from being allocated" in text]
    unknown = of(guarded).create(COLLECTION, make_patch({"deviceClassName": "gone", "driver": DRIVER}, "b"))
    assert "its impact is not known: device class gone does not exist" in unknown.message
    assert not unknown.ok


@pytest.mark.whole
def test_patch_that_others_outrank_hits_nothing(guarded: Stage) -> None:
    text = text_in(of(guarded).create(COLLECTION, make_patch({"driver": DRIVER})))
    assert of(guarded).create(COLLECTION, make_patch({"driver": DRIVER}, text=text)).ok
    wait_until(lambda: _is_known(guarded, "firmware"), "the patch is known")
    below = of(guarded).create(COLLECTION, make_patch(USED, "later"))
    assert below.ok, below.message
    assert [text for text in below.warnings if "taints no device now" in text], below.warnings
    above = of(guarded).create(COLLECTION, make_patch(USED, "above", priority=1))
    assert "hits 12 devices, 12 pods" in above.message


def _is_known(stage: Stage, name: str) -> bool:
    """Whether the webhook has heard of a patch: one that it outranks hits nothing."""
    patch = make_patch({"driver": DRIVER}, f"probe-of-{name}", effect="NoExecute")
    return of(stage).create(COLLECTION, patch, dry_run=True).ok


@pytest.mark.whole
def test_of_an_update_counts_what_it_adds_and_nothing_is_kept_from_being_deleted(guarded: Stage) -> None:
    where = f"{COLLECTION}/firmware"
    assert of(guarded).create(COLLECTION, make_patch(node(0))).ok
    wider = {"spec": {"devices": {"filter": {"pool": None}}}}
    assert "hits 24 devices, 12 pods" in of(guarded).patch(where, wider).message
    more = {"spec": {"devices": {"taints": [{"key": KEY, "effect": "NoExecute"}], "priority": -1}}}
    assert of(guarded).patch(where, more).ok, "less"
    assert of(guarded).delete(where).ok


@pytest.mark.whole
def test_many_small_patches_are_one_large_one(guarded: Stage) -> None:
    for number in range(5):
        reply = of(guarded).create(COLLECTION, make_patch(node(number), f"p-{number}"))
        assert reply.ok, reply.message
    sixth = of(guarded).create(COLLECTION, make_patch(node(5), "p-5"))
    assert "with all other taints of the last 10 min it hits 6 pods, and the limit is 5 pods" in sixth.message
    rule = of(guarded).create(RULES, make_rule(None, node(6)))
    assert "it hits 6 pods" in rule.message, "rules count with them"


def test_taint_passes_while_the_evicted_pods_find_other_devices(guarded: Stage) -> None:
    dana, everywhere = of(guarded), {"driver": DRIVER}
    none = f"{NODES} of {NODES} pods find no other device: {NODES} need any, 0 free, and the limit is 0 such pods"
    guarded.use(make_policy(impact={"limits": [{"pendingPods": 0}]}))
    try:
        for collection, make in ((RULES, partial(make_rule, None)), (COLLECTION, make_patch)):
            # Past its tenth of a second the answer is that it is not known.
            wait_until(partial(_passes, dana, collection, make(node(0))), "11 devices are free")
            wait_until(partial(_says, dana, collection, make(everywhere), none), none)
        confirmed = make_patch(everywhere, text=text_in(dana.create(COLLECTION, make_patch(everywhere))))
        wait_until(partial(_passes, dana, COLLECTION, confirmed), "it was confirmed")
    finally:
        guarded.use(POLICY)


def _passes(client: Client, collection: str, obj: Json) -> bool:
    return client.create(collection, obj, dry_run=True).ok


def _says(client: Client, collection: str, obj: Json, words: str) -> bool:
    return words in client.create(collection, obj, dry_run=True).message


# --- soften ----------------------------------------------------------------------------------------


@pytest.mark.whole
def test_patch_of_an_operator_is_softened(guarded: Stage) -> None:
    client, where = of(guarded, OPERATOR), f"{COLLECTION}/firmware"
    taint = {"key": KEY, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    patch = make_patch(USED, taints=[taint])
    reply = client.create(COLLECTION, patch)
    assert reply.ok, reply.message
    assert [text for text in reply.warnings if "DT121" in text], reply.warnings
    stored = reply.object
    [soft] = stored["spec"]["devices"]["taints"]
    assert (soft["effect"], stored["metadata"]["annotations"][SOFTENED_KEYS]) == ("NoSchedule", KEY)
    assert soft["timeAdded"] > taint["timeAdded"], "grace periods begin now"
    again = client.patch(where, {"spec": {"devices": {"taints": [taint]}}})
    assert again.ok, again.message
    assert again.object["spec"] == stored["spec"]
    assert again.object["metadata"]["generation"] == 1
    wait_until(lambda: _part_passes(guarded, stored), "the rule that comes of it passes")


def _part_passes(stage: Stage, patch: Json) -> bool:
    rule = make_rule(
        patch, {"driver": DRIVER, "device": "gpu-0"}, annotations={EVICT: "true", SOFTENED_FROM: "NoExecute"}
    )
    return of(stage, CONTROLLER).create(RULES, rule, dry_run=True).ok


# --- ways around -----------------------------------------------------------------------------------


def test_rules_of_the_controller_are_those_of_a_patch(guarded: Stage) -> None:
    text = text_in(of(guarded).create(COLLECTION, make_patch(USED)))
    patch = of(guarded).create(COLLECTION, make_patch(USED, text=text)).object
    controller, part = of(guarded, CONTROLLER), {"driver": DRIVER, "device": "gpu-0"}
    rule = make_rule(patch, part)
    wait_until(lambda: controller.create(RULES, rule, dry_run=True).ok, "the patch is known")
    assert controller.create(RULES, rule).ok
    beyond = controller.create(RULES, make_rule(patch, {"driver": DRIVER, "device": "gpu-1"}, "b"))
    assert "has no such taint by patch firmware" in beyond.message
    assert "selects no published device" in controller.create(RULES, make_rule(patch, node(99), "c")).message
    bare = controller.create(RULES, make_rule(None, node(1), "d"))
    assert "may only write rules that a ResourceSlicePatch or a DeviceTaintRule controls" in bare.message
    forged = {**patch, "metadata": {**patch["metadata"], "uid": "8c5b6c7d-0000-4000-8000-000000000001"}}
    assert (
        "no ResourceSlicePatch firmware with that UID" in controller.create(RULES, make_rule(forged, part, "e")).message
    )
    more = {**rule["spec"]["taint"], "effect": "NoSchedule"}
    assert not controller.create(
        RULES, {**rule, "metadata": {**rule["metadata"], "name": "f"}, "spec": {**rule["spec"], "taint": more}}
    ).ok
    assert of(guarded).delete(f"{COLLECTION}/firmware").ok
    wait_until(lambda: not controller.create(RULES, make_rule(patch, part, "g"), dry_run=True).ok, "it is gone")


def test_marks_of_the_controller_are_no_way_around(guarded: Stage) -> None:
    """A forged owner and label, by an account that is not the controller's, and by one with a name like it."""
    text = text_in(of(guarded).create(COLLECTION, make_patch(USED)))
    patch = of(guarded).create(COLLECTION, make_patch(USED, text=text)).object
    part = {"driver": DRIVER, "device": "gpu-0"}
    wait_until(lambda: of(guarded, CONTROLLER).create(RULES, make_rule(patch, part), dry_run=True).ok, "it is known")
    for user in ("dana", f"{CONTROLLER}-2", "system:serviceaccount:default:device-taint-patch"):
        reply = of(guarded, user).create(RULES, make_rule(patch, part))
        assert "hits 12 devices, 12 pods in 1 namespace: the limit is 5 pods" in reply.message, user
    assert guarded.client.get(RULES).items == []


@pytest.mark.whole
def test_rules_of_a_patch_are_not_counted_again(guarded: Stage) -> None:
    patch = of(guarded).create(COLLECTION, make_patch({**node(0), **USED})).object
    part = {**node(0), "device": "gpu-0"}
    controller = of(guarded, CONTROLLER)
    wait_until(lambda: controller.create(RULES, make_rule(patch, part), dry_run=True).ok, "the patch is known")
    assert controller.create(RULES, make_rule(patch, part)).ok
    others = []
    for number in range(1, 5):
        reply = of(guarded).create(COLLECTION, make_patch(node(number), f"p-{number}"))
        assert reply.ok, number
        others.append(make_rule(reply.object, {**node(number), "device": "gpu-0"}, "probe"))
    wait_until(lambda: all(controller.create(RULES, each, dry_run=True).ok for each in others), "the others are known")
    assert not of(guarded).create(COLLECTION, make_patch(node(5), "p-5")).ok


@pytest.mark.whole
def test_patch_behind_one_of_another_value_counts(guarded: Stage) -> None:
    """Deleting the stronger one triggers no review, and then the rules of the weaker one begin (G01)."""
    planned: Json = {"taints": [{"key": KEY, "effect": "NoExecute", "value": "planned"}], "priority": 1}
    text = text_in(of(guarded).create(COLLECTION, make_patch({"driver": DRIVER}, **planned)))
    assert of(guarded).create(COLLECTION, make_patch({"driver": DRIVER}, **planned, text=text)).ok
    same = make_patch(USED, "same", taints=planned["taints"])
    wait_until(lambda: of(guarded).create(COLLECTION, same, dry_run=True).ok, "the patch is known")
    refused = of(guarded).create(COLLECTION, make_patch(USED, "behind"))
    assert "hits 12 devices, 12 pods in 1 namespace: the limit is 5 pods" in refused.message


@pytest.mark.whole
def test_patch_that_needs_too_many_rules_counts_when_it_asks_for_less(guarded: Stage) -> None:
    """It had none, so the pods that it hits now were never counted for it."""
    crowd = _slice(NODES)
    crowd["spec"]["devices"] = [{"name": f"idle-{at}", "attributes": {"place": {"int": 0}}} for at in range(60)]
    _ = guarded.client.create(SLICES, crowd).object
    taints = [{"key": key, "effect": "NoExecute"} for key in (KEY, "gpu.example.com/slow")]
    try:
        figures = "hits 72 devices, 12 pods in 1 namespace: the limit is 5 pods"
        wide = partial(make_patch, USED, taints=taints)
        wait_until(lambda: figures in of(guarded).create(COLLECTION, wide()).message, "the slice is known")
        assert of(guarded).create(COLLECTION, wide(text=text_in(of(guarded).create(COLLECTION, wide())))).ok
        fewer = {"metadata": {"annotations": None}, "spec": {"devices": {"taints": taints[:1]}}}
        assert figures in of(guarded).patch(f"{COLLECTION}/firmware", fewer).message
    finally:
        assert guarded.client.delete(f"{SLICES}/node-{NODES}").ok


@pytest.mark.whole
def test_devices_in_use_count_while_their_pools_are_published_again(guarded: Stage) -> None:
    """The newest generation shows one of its two slices, and not the devices that pods are on."""
    try:
        for number in range(NODES):
            spec = _slice(number)["spec"]
            spec["pool"] |= {"generation": 2, "resourceSliceCount": 2}
            _ = guarded.client.patch(
                f"{SLICES}/node-{number}", {"spec": {**spec, "devices": spec["devices"][1:]}}
            ).object
        last = make_patch({**USED, "pool": f"node-{NODES - 1}"}, "last")
        wait_until(
            lambda: (
                "a pool is published in part only" in str(of(guarded).create(COLLECTION, last, dry_run=True).warnings)
            ),
            "the webhook knows",
        )
        refused = of(guarded).create(COLLECTION, make_patch(USED))
        assert "12 pods in 1 namespace: the limit is 5 pods" in refused.message
    finally:
        for number in range(NODES):
            spec = _slice(number)["spec"]
            spec["pool"]["generation"] = 3
            _ = guarded.client.patch(f"{SLICES}/node-{number}", {"spec": spec}).object


# --- with the controller ---------------------------------------------------------------------------


@pytest.fixture
def expanding(guarded: Stage) -> Iterator[Stage]:
    """The controller is at work as well, under its own account."""
    kubeconfig = guarded.plane.kubeconfig_of(CONTROLLER, GROUPS)
    with PatchProcess(guarded.plane, kubeconfig=kubeconfig) as process:
        process.wait_for("working")
        yield guarded


def _rules(stage: Stage, label: str) -> list[Json]:
    """The specifications of the rules of a patch, or for the hardware of a rule."""
    found = stage.client.get(RULES).items
    return [each["spec"] for each in found if label in each["metadata"].get("labels", {}).values()]


@pytest.mark.whole
def test_controller_writes_what_the_guard_has_admitted(expanding: Stage) -> None:
    """A patch that is confirmed, and one that is softened: no rule of them is refused, also when devices come."""
    text = text_in(of(expanding).create(COLLECTION, make_patch(USED)))
    confirmed = of(expanding).create(COLLECTION, make_patch(USED, text=text)).object["metadata"]["uid"]
    wait_until(lambda: len(_rules(expanding, confirmed)) == NODES, "the rules are there")
    selected = [each["deviceSelector"] for each in _rules(expanding, confirmed)]
    assert all(each in selected for each in [{**node(number), "device": "gpu-0"} for number in range(NODES)])
    taints = [{"key": "gpu.example.com/slow", "effect": "NoExecute"}]
    reply = of(expanding, OPERATOR).create(COLLECTION, make_patch({"driver": DRIVER}, "soft", taints=taints))
    assert reply.ok, reply.message
    soft = reply.object["metadata"]["uid"]
    wait_until(lambda: len(_rules(expanding, soft)) == 1, "that of the softened one is there")
    assert _rules(expanding, soft)[0]["taint"]["effect"] == "NoSchedule"
    annotated = [each["metadata"].get("annotations", {}) for each in expanding.client.get(RULES).items]
    assert {(each.get(EVICT), each.get(SOFTENED_FROM)) for each in annotated} == {(None, None), ("true", "NoExecute")}
    _ = expanding.client.create(SLICES, _slice(NODES)).object
    try:
        for name in ("firmware", "soft"):
            wait_until(partial(_is_expanded, expanding, name), "it follows what is published")
    finally:
        expanding.client.delete(f"{SLICES}/node-{NODES}")


def _is_expanded(stage: Stage, name: str) -> bool:
    conditions = stage.client.get(f"{COLLECTION}/{name}").object.get("status", {}).get("conditions", [])
    return ("Expanded", "True") in [(each["type"], each["status"]) for each in conditions]


@pytest.mark.whole
def test_rules_of_reactions_are_judged_like_those_of_any_account(guarded: Stage) -> None:
    """Seven devices are reported, five pods are the limit: two rules are refused, and the log says so."""
    sick = {"key": "gpu.example.com/sick", "effect": "None"}
    when = {"driver": DRIVER, "key": sick["key"], "for": "1s"}
    reaction = {"name": "sick", "when": when, "then": {"effect": "NoExecute"}, "maxDevices": 9}
    _ = guarded.write_policy(yaml.safe_dump({**POLICY, "reactions": [reaction]})).object
    try:
        for number in range(7):
            devices = _slice(number)["spec"]["devices"]
            devices[0]["taints"] = [sick]
            _ = guarded.client.patch(f"{SLICES}/node-{number}", {"spec": {"devices": devices}}).object
        kubeconfig = guarded.plane.kubeconfig_of(CONTROLLER, GROUPS)
        with PatchProcess(guarded.plane, f"--namespace={OWN_NAMESPACE}", kubeconfig=kubeconfig) as process:
            process.wait_for("working")

            def refusals() -> list[str]:
                return [
                    each["detail"] for each in process.lines("reactions changed") if each["reason"] == "RuleRefused"
                ]

            wait_until(lambda: bool(refusals()), "the log says so")
            wait_until(lambda: len(guarded.client.get(RULES).items) == 5, "five devices are closed")
            assert "is forbidden: spec.deviceSelector" in refusals()[0]
    finally:
        _ = guarded.write_policy(yaml.safe_dump(POLICY)).object
        guarded.wait_policy(hash_of(POLICY))
        for number in range(7):
            _ = guarded.client.patch(
                f"{SLICES}/node-{number}", {"spec": {"devices": _slice(number)["spec"]["devices"]}}
            )
