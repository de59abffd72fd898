"""`diff` of two policies: what each object would be judged as, counts, and exit codes as those of kubectl diff."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_claim,
    make_meta,
    make_pod,
    make_rule,
    make_slice,
    make_taint,
    make_template,
    make_toleration,
)
from tests.unit.commands.api_server import cluster_of, serving
from tests.unit.commands.impact_suites import CLASS
from tests.unit.commands.preview_runner import HEADER, SLICES, used
from tests.unit.commands.runner import Runner
from webhook.commands.diff import command as diff
from webhook.commands.shared.main import main_of

GROUP = "/apis/resource.k8s.io"
LONG = make_toleration(effect="NoExecute", seconds=7200)
SHORT = make_toleration(effect="NoExecute", seconds=60)
OPEN: Final = HEADER
STRICT: Final = {
    **HEADER,
    "rules": [
        {
            "name": "no-long-waits",
            "action": "deny",
            "match": {"tolerations": {"keys": ["*"], "seconds": {"above": 600}}},
        }
    ],
}
WARNING: Final = {**STRICT, "mode": "warn"}
STORED: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "device-taint-webhook-policy", "namespace": "device-taint-webhook"},
    "data": {"policy.yaml": yaml.safe_dump(STRICT)},
}
RULE = make_rule(
    selector={"driver": DRIVER, "pool": "node-0"},
    taint=make_taint("maint.example.com/x", "NoSchedule", time_added="2026-06-01T09:00:00Z"),
    meta=make_meta("firmware", uid="uid-of-rule", resourceVersion="9", generation=1),
)
MAINTENANCE: Final = {"keys": ["maint.example.com/*"], "effects": ["NoSchedule", "NoExecute"]}
TAINTS: Final = {
    **HEADER,
    "taintRules": [{"name": "no-maint", "action": "deny", "match": {"taints": MAINTENANCE}}],
}
WORLD: Final = [
    make_claim([LONG], meta=make_meta("long", namespace="ml", resourceVersion="4")),
    make_claim([SHORT], meta=make_meta("short", namespace="ml")),
    make_template([LONG], meta=make_meta("long-template", namespace="web")),
    RULE,
    *SLICES,
]


class DiffRunner(Runner):
    """Writes policies and a dump, runs diff, and returns exit code, output and errors."""

    def __call__(self, old: Any, new: Any, *words: str, dump: Any = WORLD) -> tuple[int, str, str]:
        given = {"old": old, "new": new}.items()
        names = [each if isinstance(each, str) else self.write(stem, each) for stem, each in given]
        flags = [*names, *words, "--time", NOW_TEXT]
        if dump is not None:
            flags += ["--dump", self.write("dump", dump)]
        return self.said(main_of(diff, flags))

    def values(self, old: Any, new: Any, *words: str, code: int = 1, **files: Any) -> Any:
        got, output, error = self(old, new, "-o", "json", *words, **files)
        assert (got, error) == (code, ""), output
        return json.loads(output)


@pytest.fixture
def compare(alone: Path, capsys: pytest.CaptureFixture[str]) -> DiffRunner:
    return DiffRunner(alone, capsys)


def changed(found: Any) -> dict[str, list[str]]:
    return {each["name"]: [change["kind"] for change in each["changes"]] for each in found["objects"]}


def test_equal_policies_judge_alike(compare: DiffRunner) -> None:
    code, output, error = compare(STRICT, {**STRICT})
    assert (code, output, error) == (0, "6 objects compared: no difference\n", "")


def test_newly_refused_objects_are_listed_with_the_rule_and_counted(compare: DiffRunner) -> None:
    found = compare.values(OPEN, STRICT)
    assert changed(found) == {"long": ["refused"], "long-template": ["refused"]}
    assert found["summary"] == {"refused": 2, "allowed": 0, "warned": 0, "silent": 0, "defaults": 0}
    assert (found["judged"], found["different"]) == (6, 2)
    (change,) = found["objects"][0]["changes"]
    assert (change["rule"], change["path"]) == ("no-long-waits", "spec.devices.requests[0].exactly.tolerations[0]")
    code, text, _ = compare(OPEN, STRICT)
    assert code == 1
    assert text.splitlines()[0].startswith("refused  ResourceClaim ml/long: spec.devices.requests[0].exactly.toler")
    assert "6 objects compared, 2 judged differently: 2 newly refused\n" in text


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [(STRICT, OPEN, "allowed"), (OPEN, WARNING, "warned"), (WARNING, OPEN, "silent"), (WARNING, STRICT, "refused")],
)
def test_each_kind_of_change_has_its_word(old: Any, new: Any, kind: str, compare: DiffRunner) -> None:
    assert changed(compare.values(old, new)) == {"long": [kind], "long-template": [kind]}


def test_other_default_tolerations_are_a_change(compare: DiffRunner) -> None:
    match = {"namespaces": {"names": ["web"]}}
    waits = [{"key": "maint.example.com/x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    new = {**HEADER, "defaultTolerations": [{"name": "wait", "match": match, "tolerations": waits}]}
    found = compare.values(OPEN, new)
    assert set(changed(found)) == {"long-template"}
    assert set(changed(found)["long-template"]) == {"defaults"}
    assert "maint.example.com/x" in json.dumps(found["objects"][0]["changes"])


def test_rules_are_judged_by_taint_rules_and_by_limits(compare: DiffRunner) -> None:
    assert changed(compare.values(OPEN, TAINTS)) == {"firmware": ["refused"]}
    busy = [used(f"claim-{number}", f"node-0/gpu-{number}") for number in range(3)]
    evicting = make_rule(
        selector={"driver": DRIVER, "pool": "node-0"},
        taint=make_taint("hw.example.com/x", "NoExecute", time_added="2026-06-01T09:00:00Z"),
        meta=make_meta("broken", uid="uid-of-rule", resourceVersion="9", generation=1),
    )
    limited = {**HEADER, "impact": {"limits": [{"pods": 2}]}}
    found = compare.values(OPEN, limited, dump=[evicting, *busy, *SLICES])
    assert changed(found) == {"broken": ["refused"]}
    assert "impact" in found["objects"][0]["changes"][0]["message"] or found["objects"][0]["changes"][0]["rule"]


def test_requesters_count_where_a_user_is_named(compare: DiffRunner) -> None:
    match = {"requesters": {"groups": ["ops"]}, "taints": MAINTENANCE}
    only_ops = {**HEADER, "taintRules": [{"name": "ops", "action": "allow", "match": match}, *TAINTS["taintRules"]]}
    found = compare.values(OPEN, only_ops)
    assert changed(found) == {"firmware": ["refused"]}
    assert "an unknown user may not use taint" in found["objects"][0]["changes"][0]["message"]
    assert any("--user" in note for note in found["notes"])
    assert changed(compare.values(OPEN, only_ops, "--user", "mila", "--group", "ops", code=0)) == {}


@pytest.mark.parametrize(("dump", "noted"), [(WORLD, False), ([RULE], True), (WORLD[:3], False)])
def test_limits_without_slices_are_noted(dump: list[Any], compare: DiffRunner, *, noted: bool) -> None:
    notes = compare.values(OPEN, OPEN, dump=dump, code=0)["notes"]
    assert any(note.startswith("the dump has no ResourceSlices, so limits") for note in notes) is noted


def test_namespace_chooses_claims_and_templates(compare: DiffRunner) -> None:
    assert changed(compare.values(OPEN, STRICT, "-n", "web")) == {"long-template": ["refused"]}


def test_parts_that_judge_no_object_are_noted(compare: DiffRunner) -> None:
    found = compare.values(OPEN, {**HEADER, "eviction": [{"rate": 1}]}, code=0)
    assert any(note.startswith("the policies also differ in eviction") for note in found["notes"])


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("missing.yaml", OPEN, "missing.yaml"),
        ("live", OPEN, "there is no policy"),
        ({**HEADER, "rulez": []}, OPEN, "rulez"),
    ],
)
def test_policy_that_cannot_be_used_is_an_error(old: Any, new: Any, error: str, compare: DiffRunner) -> None:
    code, output, _ = compare(old, new)
    assert code == 2
    assert error in output


def test_live_is_the_policy_of_the_dump(compare: DiffRunner) -> None:
    found = compare.values("live", OPEN, dump=[*WORLD, STORED])
    assert changed(found) == {"long": ["allowed"], "long-template": ["allowed"]}


# --- a cluster ----------------------------------------------------------------------------------


@pytest.fixture
def live(compare: DiffRunner) -> Iterator[DiffRunner]:
    tables = cluster_of(*WORLD, empty=["DeviceClass", "Namespace"])
    claims = tables.collections[f"{GROUP}/v1/resourceclaims"]
    tables.collections[f"{GROUP}/v1/namespaces/ml/resourceclaims"] = claims
    tables.objects["/api/v1/namespaces/device-taint-webhook/configmaps/device-taint-webhook-policy"] = STORED
    with serving(tables, compare.folder):
        compare.server = tables
        yield compare


LIVE: Final = ("--kubeconfig", "kubeconfig")


def test_live_is_the_policy_of_the_cluster(live: DiffRunner) -> None:
    found = live.values("live", OPEN, *LIVE, dump=None)
    assert changed(found) == {"long": ["allowed"], "long-template": ["allowed"]}
    assert (found["judged"], found["source"].startswith("http://"), live.server.sent) == (6, True, [])


def test_without_permission_it_says_what_was_not_compared(live: DiffRunner) -> None:
    for name in ("resourceclaims", "resourceclaimtemplates", "devicetaintrules"):
        del live.server.collections[f"{GROUP}/v1/{name}"]
        live.server.objects[f"{GROUP}/v1/{name}"] = 403
        live.server.objects[f"{GROUP}/v1/namespaces/ml/{name}"] = 403
    found = live.values("live", OPEN, "-n", "ml", *LIVE, dump=None)
    assert changed(found) == {"long": ["allowed"]}
    assert any(note.startswith("no permission to read devicetaintrules, so no rule") for note in found["notes"])


def test_versions_and_groups_that_are_not_ours_are_not_counted(compare: DiffRunner) -> None:
    later = [{**WORLD[0], "apiVersion": version} for version in ("resource.k8s.io/v3", "example.com/v1")]
    code, output, _ = compare(OPEN, STRICT, dump=later)
    assert (code, output.splitlines()[-1]) == (2, "0 objects compared: no difference")


def test_pods_and_other_kinds_are_not_judged(compare: DiffRunner) -> None:
    found = compare.values(OPEN, STRICT, code=0, dump=[make_pod("web"), make_slice([])])
    assert found["judged"] == 1


PENDING: Final = {**HEADER, "impact": {"limits": [{"pendingPods": 0}]}}
ALL_CLOSED: Final = make_rule(
    selector={"driver": DRIVER}, taint=make_taint("maint.example.com/x", "NoExecute"), meta=make_meta("all")
)
USED: Final = [*SLICES, used("train", "node-0/gpu-0"), ALL_CLOSED]


@pytest.mark.parametrize(
    ("dump", "refused"),
    [
        pytest.param([CLASS, *USED], ["all"], id="its pods find no other device"),
        pytest.param(USED, [], id="there is no class"),
        pytest.param([CLASS, *USED[len(SLICES) :]], [], id="there are no slices"),
    ],
)
def test_pods_without_a_place_are_compared_where_classes_and_slices_are_there(
    compare: DiffRunner, dump: Any, refused: list[str]
) -> None:
    found = compare.values(OPEN, PENDING, code=1 if refused else 0, dump=dump)
    assert [each["name"] for each in found["objects"] if each["changes"][0]["kind"] == "refused"] == refused
    noted = [note for note in found["notes"] if note.endswith("so limits on pendingPods are not compared")]
    assert len(noted) == (0 if refused else 1)


def test_nothing_is_noted_of_pods_without_a_place_where_no_policy_limits_them(compare: DiffRunner) -> None:
    assert not any("pendingPods" in note for note in compare.values(OPEN, OPEN, code=0, dump=USED)["notes"])


@pytest.mark.parametrize(
    ("dump", "words"),
    [
        pytest.param([make_pod("web")], [], id="nothing of ours"),
        pytest.param([make_claim([LONG], meta=make_meta("c", namespace="ml"))], ["-n", "mlx"], id="no such namespace"),
    ],
)
def test_a_dump_without_anything_to_compare_gives_two(dump: Any, words: list[str], compare: DiffRunner) -> None:
    code, output, _ = compare(OPEN, STRICT, *words, dump=dump)
    assert (code, output.splitlines()[0]) == (2, "dump.yaml: error: contains nothing to compare")
    found = compare.values(OPEN, STRICT, *words, code=2, dump=dump)
    assert [each["message"] for each in found["findings"]] == ["contains nothing to compare"]


def test_a_cluster_without_anything_to_compare_gives_zero(live: DiffRunner) -> None:
    for objects in live.server.collections.values():
        objects.clear()
    assert live.values(OPEN, STRICT, *LIVE, code=0, dump=None)["judged"] == 0
