"""`preview` of a cluster: what it asks an API server for, what it does without, and the text that confirms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.builders import (
    DRIVER,
    KEY,
    decoded,
    make_admission_request,
    make_context,
    make_meta,
    make_patch,
    make_rule,
    make_taint,
)
from tests.tables import table
from tests.unit.commands.api_server import ApiServer, bare, cluster_of, serving
from tests.unit.commands.preview_runner import (
    CLUSTER,
    OUT_OF_TREE,
    UNUSED,
    PreviewRunner,
    pool_slice,
    rule,
)
from webhook.admission.chain import validate
from webhook.admission.confirmation import digest_of, read_text
from webhook.api.rules import CONFIRM_IMPACT
from webhook.commands.preview import command as preview
from webhook.commands.preview import from_cluster as preview_cluster
from webhook.commands.shared.main import main_of
from webhook.files.manifests import Stock
from webhook.files.read import parse
from webhook.inventory.state import Sight
from webhook.policy.model import ImpactLimits, ImpactSettings

GROUP = "/apis/resource.k8s.io"
RULES = f"{GROUP}/v1/devicetaintrules"
CONFIG_MAP = "/api/v1/namespaces/device-taint-webhook/configmaps/device-taint-webhook-policy"
TEXT = "v1 devices=8 claims=4 pods=4 namespaces=1 of=abcdefgh234567yz"
TO_CONFIRM = f'to confirm this impact, add this annotation:\n  devicetaint.io/confirm-impact: "{TEXT}"\n'
ASK = ("--kubeconfig", "kubeconfig")


def status(code: int, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "code": code, "message": message}


@pytest.fixture
def live(run_preview: PreviewRunner) -> Iterator[PreviewRunner]:
    nodes = [{"kind": "Node", "metadata": {"name": name}} for name in ("node-0", "node-1")]
    tables = cluster_of(*CLUSTER, *nodes, empty=["DeviceTaintRule", "Namespace"])
    with serving(tables, run_preview.folder):
        run_preview.server = tables
        yield run_preview


def ask(run_preview: PreviewRunner, asked: Any, *words: str) -> tuple[int, str]:
    return run_preview(asked, *ASK, *words, dump=None)


def told_by_cluster(run_preview: PreviewRunner, asked: Any = None) -> Any:
    return run_preview.told(asked or rule(), *ASK, dump=None)


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_cluster_tells_what_its_dump_tells(live: PreviewRunner, *, forgetful: bool) -> None:
    live.server.forgetful = forgetful
    found, dumped = told_by_cluster(live), live.told(rule(), dump=CLUSTER)
    assert found.pop("confirmation") == {"answer": "granted", "text": None, "message": None}
    assert dumped.pop("confirmation")["answer"] == "notAsked"
    assert found == dumped


# --- patches ------------------------------------------------------------------------------------


def serve_patching(tables: ApiServer, *patches: Any) -> None:
    classes = [{"metadata": {"name": name}, "spec": {"selectors": []}} for name in ("all", DRIVER)]
    tables.collections[f"{GROUP}/v1/deviceclasses"] = classes
    tables.collections["/apis/devicetaint.io/v1alpha1/resourceslicepatches"] = [bare(each) for each in patches]
    tables.objects["/apis/devicetaint.io/v1alpha1"] = {"resources": [{"name": "resourceslicepatches"}]}
    tables.objects[f"{GROUP}/v1"]["resources"].append({"name": "deviceclasses"})


def test_patches_and_classes_are_read_for_patches(live: PreviewRunner) -> None:
    stored = make_patch(meta=make_meta("high"), priority=5, attributes={"a.example/b": {"int": 5}})
    serve_patching(live.server, stored)
    asked = make_patch(filter_={"deviceClassName": "all"}, attributes={"a.example/b": {"int": 1}})
    changes = told_by_cluster(live, asked)["patch"]["changes"]
    assert [(each["after"], each["patch"]) for each in changes] == [({"int": 5}, "high")] * 8
    assert live.server.sent == []


def test_cluster_without_the_kind_has_no_patches(live: PreviewRunner) -> None:
    changes = told_by_cluster(live, make_patch(attributes={"a.example/b": {"int": 1}}))["patch"]["changes"]
    assert [each["after"] for each in changes] == [{"int": 1}] * 8
    assert not [target for target in live.server.asked if target.startswith("/apis/devicetaint.io/v1alpha1/r")]


def test_patches_are_not_read_for_rules(live: PreviewRunner) -> None:
    serve_patching(live.server)
    told_by_cluster(live)
    assert not [target for target in live.server.asked if "patches" in target]


def test_stored_patch_that_cannot_be_read_fails(live: PreviewRunner) -> None:
    serve_patching(live.server, make_patch(priority="high"))
    code, output = ask(live, make_patch(), "-o", "json")
    assert (code, output) == (2, "")


# --- the text -----------------------------------------------------------------------------------


def test_the_webhooks_refusal_gives_the_text(live: PreviewRunner) -> None:
    """However long the refusal is: the text stands at its end, beyond what errors in logs show of it."""
    padding = "; the policy has more to say" * 60
    text = f'denied the request: hits 8 devices{padding}, set annotation devicetaint.io/confirm-impact to "{TEXT}"'
    live.server.verdict = status(403, text)
    code, output = ask(live, rule())
    assert code == 0
    assert output.endswith(f"dry run: refused: {text}\n{TO_CONFIRM}")
    assert told_by_cluster(live)["confirmation"] == {
        "answer": "needsConfirmation",
        "text": TEXT,
        "message": text,
    }


def test_the_text_is_found_in_what_the_guard_says(live: PreviewRunner) -> None:
    stock = Stock()
    stock.add(parse("dump.yaml", yaml.safe_dump_all(CLUSTER).encode()).manifests)
    context = make_context(sight=Sight(stock.inventory))
    asked = rule(selector={})
    decision = validate(make_admission_request(asked), context)
    live.server.verdict = status(decision.code, "; ".join(str(error) for error in decision.errors))
    _, output = ask(live, asked)
    confirmed = rule(selector={}, annotations={CONFIRM_IMPACT: text_at_the_end(output)})
    assert validate(make_admission_request(confirmed), context).allowed


def text_at_the_end(output: str) -> str:
    return output.splitlines()[-1].split('"')[1]


@pytest.mark.parametrize("effect", ["NoExecute", "None"])
def test_a_dump_gives_a_text_that_the_guard_takes(effect: str, run_preview: PreviewRunner) -> None:
    stock = Stock()
    stock.add(parse("dump.yaml", yaml.safe_dump_all(CLUSTER).encode()).manifests)
    limits = ImpactSettings(limits=(ImpactLimits(pods=0),))
    context = make_context(sight=Sight(stock.inventory), impact=limits)
    _, output = run_preview(rule(effect, selector={}), dump=CLUSTER)
    confirmed = rule("NoExecute", selector={}, annotations={CONFIRM_IMPACT: text_at_the_end(output)})
    assert validate(make_admission_request(confirmed), context).allowed


def softened(request: tuple[str, str, Any]) -> tuple[int, Any]:
    """What a webhook makes of a rule."""
    sent = request[2]
    marks = {"devicetaint.io/evict": "true", "devicetaint.io/softened-from": "NoExecute"}
    taint = {**sent["spec"]["taint"], "effect": "NoSchedule"}
    metadata = {**sent["metadata"], "annotations": {**(sent["metadata"].get("annotations") or {}), **marks}}
    return 201, {**sent, "metadata": metadata, "spec": {**sent["spec"], "taint": taint}}


def test_rule_that_is_softened_has_a_text_that_confirms_it_as_it_was_sent(
    live: PreviewRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(method: str, target: str, body: bytes) -> tuple[int, Any]:
        live.server.sent.append((method, target, json.loads(body)))
        return softened(live.server.sent[-1])

    monkeypatch.setattr(live.server, "write", write)
    exit_code, output = ask(live, rule())
    assert exit_code == 0
    assert len(live.server.sent) == 1
    assert "dry run: accepted as NoSchedule with annotation devicetaint.io/evict, by the policy\n" in output
    given, _ = decoded(rule())
    said = read_text(text_at_the_end(output))
    assert said is not None
    assert said.of == digest_of(given, given.meta.name, None)


def test_rule_that_the_worker_has_stopped_has_a_text_though_the_cluster_accepts_it(live: PreviewRunner) -> None:
    conditions = [
        {"type": "devicetaint.io/Eviction", "status": "False", "reason": "Stopped"},
        {"type": "devicetaint.io/EvictedPods", "status": "True", "message": "96"},
    ]
    stored = rule(meta=make_meta("unhealthy-gpu", resourceVersion="7", uid="u")) | {
        "status": {"conditions": conditions}
    }
    live.server.collections[RULES] = [bare(stored)]
    live.server.objects[f"{RULES}/unhealthy-gpu"] = stored
    given = told_by_cluster(live)["confirmation"]
    assert given["answer"] == "granted"
    assert " done=96 of=" in given["text"]


def test_a_new_rule_is_sent_as_it_is_and_only_to_try(live: PreviewRunner) -> None:
    assert told_by_cluster(live)["confirmation"]["answer"] == "granted"
    assert live.server.sent == [("POST", f"{RULES}?dryRun=All", rule())]


def test_a_rule_that_is_there_is_sent_as_applying_would_leave_it(live: PreviewRunner) -> None:
    """What the file leaves out of the spec goes, and so do annotations of ours; what others have set stays."""
    annotations = {"devicetaint.io/evict": "true", "example.com/team": "blue"}
    stored = make_rule(
        selector={"driver": DRIVER, "pool": "node-0"},
        taint=make_taint(effect="NoExecute"),
        meta=make_meta("unhealthy-gpu", annotations=annotations, resourceVersion="7", uid="u", labels={"a": "b"}),
    )
    live.server.collections[RULES] = [bare(stored)]
    live.server.objects[f"{RULES}/unhealthy-gpu"] = stored
    asked = rule(annotations={"devicetaint.io/owner": "ops"})
    told_by_cluster(live, asked)
    sent = rule(
        meta=make_meta(
            "unhealthy-gpu",
            annotations={"example.com/team": "blue", "devicetaint.io/owner": "ops"},
            resourceVersion="7",
            uid="u",
            labels={"a": "b"},
        )
    )
    sent["spec"]["taint"]["timeAdded"] = stored["spec"]["taint"]["timeAdded"]
    assert live.server.sent == [("PUT", f"{RULES}/unhealthy-gpu?dryRun=All", sent)]


def test_another_taint_is_another_time(live: PreviewRunner) -> None:
    live.server.objects[f"{RULES}/unhealthy-gpu"] = make_rule(taint=make_taint(effect="NoSchedule"))
    told_by_cluster(live)
    ((_, _, sent),) = live.server.sent
    assert sent["spec"]["taint"] == {"key": KEY, "effect": "NoExecute"}


def test_slices_are_not_sent(live: PreviewRunner) -> None:
    assert told_by_cluster(live, pool_slice("node-0"))["confirmation"] is None
    assert live.server.sent == []


@pytest.mark.parametrize(
    ("verdict", "code", "line"),
    [
        (status(403, "you may not"), 1, f"dry run: refused: POST {RULES}?dryRun=All: 403: you may not"),
        (status(422, "is invalid"), 1, f"dry run: refused: POST {RULES}?dryRun=All: 422: is invalid"),
        (status(409, "exists"), 1, f"dry run: refused: POST {RULES}?dryRun=All: 409: exists"),
        (
            status(500, "failed calling webhook"),
            2,
            f"dry run: no answer: POST {RULES}?dryRun=All: 500: failed calling webhook",
        ),
    ],
)
def test_other_refusals_are_told(verdict: Any, code: int, line: str, live: PreviewRunner) -> None:
    live.server.verdict = verdict
    given, output = ask(live, rule())
    assert (given, output.splitlines()[-1]) == (code, line)


# --- what there is to see -----------------------------------------------------------------------


def test_a_cluster_without_rules_says_so(live: PreviewRunner) -> None:
    live.server.objects[f"{GROUP}/v1"]["resources"].pop()
    told = told_by_cluster(live)
    assert told["notes"] == [
        "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaintRules): rules would do nothing",
        UNUSED,
    ]
    assert told["confirmation"]["answer"] == "notAsked"
    assert (told["summary"]["evicted"], live.server.sent) == (4, [])


def test_rules_may_be_served_in_another_version_than_claims(live: PreviewRunner) -> None:
    live.server.objects[f"{GROUP}/v1"]["resources"].pop()
    live.server.objects[f"{GROUP}/v1beta2"] = {"resources": [{"name": "devicetaintrules"}]}
    stored = make_rule(selector={"driver": DRIVER}, taint=make_taint(effect="NoExecute"))
    live.server.collections[f"{GROUP}/v1beta2/devicetaintrules"] = [bare(stored)]
    assert "the rule already exists" in told_by_cluster(live)["notes"][0]


def test_without_pods_names_are_all_there_is(live: PreviewRunner) -> None:
    del live.server.collections["/api/v1/pods"]
    live.server.objects["/api/v1/pods"] = 403
    code, output = ask(live, rule())
    assert (code, "POD           DEVICES" in output, "OWNER" in output) == (0, True, False)
    assert (
        "note: no permission to read pods, so their owners and priorities are unknown: GET /api/v1/pods: 403" in output
    )


@pytest.mark.parametrize(
    ("config_map", "extended", "note"),
    [
        ({"metadata": {}, "data": {"policy.yaml": json.dumps(OUT_OF_TREE)}}, 0, False),
        (404, 1, False),
        (403, 1, True),
    ],
)
def test_the_clusters_policy_says_who_evicts(
    config_map: Any, extended: int, live: PreviewRunner, *, note: bool
) -> None:
    live.server.objects[CONFIG_MAP] = config_map
    told = told_by_cluster(live)
    assert told["summary"]["extended"] == extended
    assert (
        any(each.startswith("no permission to read the policy, so the built-in one") for each in told["notes"]) is note
    )


def test_the_policy_is_not_asked_for_if_one_is_given(live: PreviewRunner) -> None:
    live(rule(), *ASK, dump=None, policy=OUT_OF_TREE)
    assert [each for each in live.server.asked if "configmaps" in each and "autoscaler" not in each] == []


@table(
    "change, message",
    {
        "claims cannot be listed": (
            lambda tables: tables.collections.pop(f"{GROUP}/v1/resourceclaims"),
            f"GET {GROUP}/v1/resourceclaims: 404",
        ),
        "no DRA": (
            lambda tables: tables.objects.pop(f"{GROUP}/v1"),
            "resourceslices.resource.k8s.io is not served in v1, v1beta2, v1beta1",
        ),
        "an object that nobody understands": (
            lambda tables: tables.collections[f"{GROUP}/v1/resourceclaims"].append(
                {"metadata": {"namespace": "ml", "name": "odd"}, "status": 3}
            ),
            f"GET {GROUP}/v1/resourceclaims: ml/odd cannot be read: status: Invalid value: 3",
        ),
    },
)
def test_a_cluster_that_cannot_be_asked_gives_two(change: Any, message: str, live: PreviewRunner) -> None:
    change(live.server)
    live.write("asked", rule())
    assert main_of(preview, ["asked.yaml", *ASK]) == 2
    assert f"device-taint-webhook preview: {message}" in live.capsys.readouterr().err


def test_a_large_cluster_says_how_far_it_is(live: PreviewRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    live.write("asked", rule())
    monkeypatch.setattr(preview_cluster, "_QUIET_SECONDS", 600.0)
    assert main_of(preview, ["asked.yaml", *ASK]) == 0
    assert live.capsys.readouterr().err == ""
    monkeypatch.setattr(preview_cluster, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(preview_cluster, "_TELL_EVERY_SECONDS", 0.0)
    assert main_of(preview, ["asked.yaml", *ASK]) == 0
    lines = live.capsys.readouterr().err.splitlines()
    assert lines[:2] == [f"device-taint-webhook preview: 2 {each} read" for each in ("nodes", "resourceslices")]
    assert lines[-1] == "device-taint-webhook preview: 8 pods read"
