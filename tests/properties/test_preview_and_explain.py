"""`preview` of a rule and `explain` of a pod say the same: who is evicted because of it, and when."""

from __future__ import annotations

import contextlib
import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import (
    DRIVER,
    NOW,
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
from tests.unit.commands.preview_runner import GROUP, HEADER
from webhook.commands.explain import command as explain
from webhook.commands.preview import command as preview
from webhook.commands.shared.main import main_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PLACES: Final = [f"node-{node}/gpu-{gpu}" for node in range(2) for gpu in range(2)]
PODS: Final = ("a", "b", "c", "d")
CLAIMS: Final = ("k", "l", "m", "n")
KEYS: Final = ("x.example.com/bad", "y.example.com/bad")
TIMES: Final = (None, "2026-06-01T11:00:00Z", "2026-06-01T11:59:30Z", NOW_TEXT)
KEPT: Final = {"skipped", "terminating", "stuck"}
"""States of pods that are not to be evicted."""

tolerations = st.lists(
    st.builds(
        make_toleration,
        st.sampled_from([None, *KEYS]),
        operator=st.just("Exists"),
        effect=st.sampled_from([None, "NoExecute", "NoExecute", "NoSchedule"]),
        seconds=st.sampled_from([None, -1, 0, 20, 3600, 9223372037]),
    ),
    max_size=2,
)


@st.composite
def taints(draw: st.DrawFn, *effects: str) -> Any:
    return make_taint(
        draw(st.sampled_from(KEYS)), effect=draw(st.sampled_from(effects)), time_added=draw(st.sampled_from(TIMES))
    )


@st.composite
def slices(draw: st.DrawFn, node: str) -> Any:
    taint = st.lists(taints("NoExecute", "NoSchedule", "None"), max_size=1)
    devices = [
        make_device(f"gpu-{number}", draw(taint) if draw(st.integers(0, 3)) == 0 else None) for number in range(2)
    ]
    found = make_slice(devices, pool=node, node_name=node, meta=make_meta(f"{node}-gpu"))
    found["spec"]["pool"]["resourceSliceCount"] = draw(st.sampled_from([1, 1, 1, 2]))
    return found


@st.composite
def rules(draw: st.DrawFn, name: str) -> Any:
    selectors = [{}, {"driver": DRIVER}, {"pool": "node-0"}, {"device": "gpu-0"}, {"driver": "other.example.com"}, None]
    annotations = {"devicetaint.io/evict": "true"} if draw(st.booleans()) else {}
    if draw(st.integers(0, 3)) == 0:
        annotations["devicetaint.io/not-before"] = draw(
            st.sampled_from(["2026-06-01T11:50:00Z", "2026-06-01T13:00:00Z"])
        )
    taint = draw(taints("NoExecute", "NoExecute", "NoSchedule", "None"))
    return make_rule(
        selector=draw(st.sampled_from(selectors)),
        taint=taint,
        meta=make_meta(name, uid=f"uid-of-{name}", annotations=annotations or None),
    )


@st.composite
def claims(draw: st.DrawFn, name: str) -> Any:
    """A claim that was written or made from a template, for some of the pods or for a group."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": node, "device": device, "tolerations": draw(tolerations)}
        | ({"adminAccess": True} if draw(st.integers(0, 5)) == 0 else {})
        for node, device in (
            each.split("/") for each in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2))
        )
    ]
    users = [
        make_consumer(each, uid=f"uid-of-{each}")
        for each in draw(st.lists(st.sampled_from(PODS), unique=True, max_size=2))
    ]
    if draw(st.integers(0, 4)) == 0:
        users.append(make_consumer("crew", **GROUP))
    owner = draw(st.sampled_from([None, *PODS]))
    references = (
        None if owner is None else [{"kind": "Pod", "name": owner, "uid": f"uid-of-{owner}", "controller": True}]
    )
    allocation = {"allocation": {"devices": {"results": results}}} if draw(st.integers(0, 7)) else {}
    return make_claim(
        meta=make_meta(name, namespace="ml", ownerReferences=references), status={**allocation, "reservedFor": users}
    )


@st.composite
def pods(draw: st.DrawFn, name: str) -> Any:
    """A pod that names some claims, itself or from templates; on a node or none, and at any stage."""
    named = draw(st.lists(st.sampled_from(CLAIMS), unique=True, min_size=1, max_size=3))
    meta: dict[str, Any] = {"annotations": draw(st.sampled_from([None, None, {"devicetaint.io/hold": "demo"}]))}
    if draw(st.integers(0, 5)) == 0:
        meta["deletionTimestamp"] = NOW_TEXT
    pod = make_pod(
        name,
        owner=draw(st.sampled_from([None, "ReplicaSet/r", "DaemonSet/d", "Job/j"])),
        phase=draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded"])),
        meta=meta,
        nodeName=draw(st.sampled_from(["node-0", "node-0", "node-0", None])),
        schedulingGroup=draw(st.sampled_from([None, None, {"podGroupName": "crew"}])),
        resourceClaims=[
            {"name": each} | draw(st.sampled_from([{"resourceClaimName": each}, {"resourceClaimTemplateName": "t"}]))
            for each in named
        ],
    )
    made = [each["name"] for each in pod["spec"]["resourceClaims"] if "resourceClaimTemplateName" in each]
    there = [each for each in made if draw(st.integers(0, 5))]
    pod["status"]["resourceClaimStatuses"] = [{"name": each, "resourceClaimName": each} for each in there]
    return pod


@st.composite
def dumps(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """The rules, and everything else."""
    objects = [draw(slices(node)) for node in ("node-0", "node-1")]
    objects += [draw(claims(name)) for name in CLAIMS]
    objects += [draw(pods(name)) for name in PODS]
    if draw(st.booleans()):
        extended = make_scheduler_claim("a", draw(st.sampled_from(PLACES)))
        objects.append(extended)
        pod = next(each for each in objects if each["kind"] == "Pod")
        pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": extended["metadata"]["name"]}
    if draw(st.booleans()):
        meta = make_meta("crew", namespace="ml", uid="uid-of-crew")
        mode = draw(st.sampled_from(["single", "all"]))
        spec: Any = {"disruptionMode": {mode: {}}}
        objects.append({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": spec})
    return [draw(rules(f"rule-{number}")) for number in range(draw(st.integers(1, 2)))], objects


def said(verb: Any, *words: str) -> Any:
    """What a verb says as JSON."""
    written = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stdout(written):
        main_of(verb, [*words, "--time", NOW_TEXT, "-o", "json"])
    return json.loads(written.buffer.getvalue())


def previewed(path: Path, words: Iterable[str]) -> dict[str, dict[str, datetime]]:
    """By pod, the rules that evict it, and when."""
    found: dict[str, dict[str, datetime]] = {}
    for each in said(preview, str(path / "rules.json"), "--dump", str(path), *words)["previews"]:
        if each["simulated"]:
            continue
        evicted = [(row["name"], row) for row in each["pods"]]
        evicted += [(name, row) for row in each["podGroups"] for name in row["pods"]]
        for name, row in evicted:
            if row["outcome"] == "Evicted":
                due = NOW + timedelta(seconds=row["dueSeconds"])
                rules = found.setdefault(name, {})
                rules[each["name"]] = min(due, rules.get(each["name"], due))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dump")


@pytest.mark.parametrize("in_tree", ["active", "absent"])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dump=dumps())
def test_every_pod_is_evicted_by_both_or_by_neither(
    folder: Path, in_tree: str, dump: tuple[list[Any], list[Any]]
) -> None:
    asked, objects = dump
    policy = {**HEADER, "inTreeEvictor": in_tree}
    for name, content in (("rules", asked), ("objects", [*objects, policy])):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": content})
        (folder / f"{name}.json").write_text(text)
    mode = "replacement" if in_tree == "absent" else "delegated"
    by_preview = previewed(folder, ())
    for name in PODS:
        told = said(explain, "pod", name, "-n", "ml", "--dump", str(folder), "--mode", mode)
        evictions = [each for each in told["evictions"] if each["state"] not in KEPT]
        rules = by_preview.get(name, {})
        assert {rule for each in evictions for rule in each["rules"]} == set(rules), name
        for each in evictions:
            if each["due"] is not None and each["rules"] and not each["drivers"]:
                due = datetime.strptime(each["due"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
                assert max(due, NOW) == min(rules[rule] for rule in each["rules"]), name
