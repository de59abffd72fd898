"""`explain` of a pod, a claim, a device or a rule: of a dump, and of a cluster that the caller may only see in part."""

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
    make_device,
    make_meta,
    make_pod,
    make_slice,
    make_taint,
    make_toleration,
)
from tests.unit.commands.api_server import bare, cluster_of, serving
from tests.unit.commands.preview_runner import ANY_EFFECT, HEADER, pool_slice, rule, used
from tests.unit.commands.standing_clock import Then
from tests.unit.commands.status_runner import (
    AN_HOUR,
    BUDGET,
    CLAIMS,
    CLUSTER,
    LEASE,
    NAMESPACE,
    PODS,
    RULE,
    SINCE,
    SLICES,
    StatusRunner,
)
from webhook.commands.explain import command as explain
from webhook.commands.status import run as running

GROUP = "/apis/resource.k8s.io"
RULES = f"{GROUP}/v1/devicetaintrules"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/device-taint-webhook/leases/device-taint-webhook-evict"
LIVE: Final = ("--kubeconfig", "kubeconfig", "--time", NOW_TEXT)
TEN_MINUTES = make_toleration(effect="NoExecute", seconds=600)
SHORT_WAITS: Final = {
    **HEADER,
    "default": "deny",
    "rules": [
        {
            "name": "short-waits",
            "action": "allow",
            "match": {"tolerations": {"keys": ["*"], "seconds": {"atMost": 1800}}},
        }
    ],
}


def asking(name: str, tolerations: list[Any], device: str) -> Any:
    """A claim that asks for what its allocation has copied."""
    claim = used(name, device, tolerations=tolerations)
    return {**claim, "spec": make_claim(tolerations)["spec"]}


LATE = asking("train-late", [AN_HOUR], "node-0/gpu-2")
SOON = asking("soon", [TEN_MINUTES], "node-0/gpu-7")
HELD: Final = [*CLUSTER, LATE, SOON, make_pod("soon", "soon")]
"""The cluster of the tests of `status`, with claims whose specification the policy can judge."""


class ExplainRunner(StatusRunner):
    """Writes a dump, explains one object of it, and returns exit code, output and errors."""

    verb = explain

    def __call__(self, *words: str, dump: Any = HELD, policy: Any = SHORT_WAITS) -> tuple[int, str, str]:
        return super().__call__(*words, dump=dump, policy=policy)


@pytest.fixture
def ask(alone: Path, capsys: pytest.CaptureFixture[str]) -> ExplainRunner:
    return ExplainRunner(alone, capsys)


@pytest.mark.parametrize(
    ("usual", "words"),
    [
        (("pod", "web-0", "-n", "ml"), ("pod", "ml/web-0")),
        (("pod", "web-0", "-n", "ml"), ("po/ml/web-0", "-n", "ml")),
        (("pod", "web-0", "-n", "ml"), ("pods.v1./web-0", "-n", "ml")),
        (("claim", "train-late", "-n", "ml"), ("resourceclaims.resource.k8s.io/ml/train-late",)),
        (("rule", "firmware"), ("devicetaintrules.v1beta2.resource.k8s.io/firmware", "-n", "web")),
        (("rule", "firmware"), ("Rules", "firmware")),
    ],
)
def test_object_is_named_as_kubectl_does_or_with_its_namespace(
    usual: tuple[str, ...], words: tuple[str, ...], ask: ExplainRunner
) -> None:
    assert ask(*words) == ask(*usual)


def test_pod_that_waits_for_a_budget_names_it(ask: ExplainRunner) -> None:
    found = ask.values("pod", "web-0", "-n", "ml")
    (eviction,) = found["evictions"]
    assert (eviction["state"], eviction["due"], eviction["rules"]) == ("blocked", "2026-06-01T11:55:00Z", ["firmware"])
    assert (eviction["waitsFor"]["kind"], eviction["waitsFor"]["name"]) == ("disruptionBudget", "web")
    ((taint,),) = [device["taints"] for device in found["claims"][0]["devices"]]
    assert (taint["rule"], taint["outcome"], taint["reason"]) == ("firmware", "Evicted", "NotTolerated")
    said = next(each for each in found["reported"] if each["type"] == "devicetaint.io/Eviction")
    assert (said["rule"], said["reason"], said["current"]) == ("firmware", "Blocked", True)
    code, text, _ = ask("pod", "web-0", "-n", "ml")
    assert code == 0
    assert "waits for disruption budget web: disruptionsAllowed 0" in text
    assert "firmware reports devicetaint.io/Eviction=True, Blocked: 2 pods evicted" in text


def test_pod_that_tolerates_a_taint_for_a_while_says_until_when_and_what_the_policy_says_today(
    ask: ExplainRunner,
) -> None:
    ((late,),) = [device["taints"] for device in ask.values("pod/train-late", "-n", "ml")["claims"][0]["devices"]]
    assert (late["reason"], late["until"], late["toleration"]["tolerationSeconds"]) == (
        "ToleratedForSeconds",
        "2026-06-01T12:55:00Z",
        3600,
    )
    assert (late["policy"]["decision"], late["policy"]["rule"]) == ("denied", "default")
    found = ask.values("pod", "soon", "-n", "ml")
    ((soon,),) = [device["taints"] for device in found["claims"][0]["devices"]]
    assert (soon["until"], soon["policy"]["decision"], soon["policy"]["rule"]) == (
        "2026-06-01T12:05:00Z",
        "allowed",
        "short-waits",
    )
    assert [each["due"] for each in found["evictions"]] == ["2026-06-01T12:05:00Z"]
    _, text, _ = ask("pod", "train-late", "-n", "ml")
    assert "tolerated until 2026-06-01T12:55:00Z by a toleration of key" in text
    assert "; the policy would refuse that today: rule default" in text


def test_hold_and_window_and_pause_are_what_a_pod_waits_for(ask: ExplainRunner) -> None:
    held = ask.values("pod", "train-held", "-n", "ml")
    assert (held["hold"], held["evictions"][0]["waitsFor"]["kind"]) == ("checkpoint until noon", "hold")
    closed = {**HEADER, "eviction": [{"windows": [{"schedule": "0 22 * * *", "duration": "1h", "zone": "UTC"}]}]}
    (waiting,) = ask.values("pod", "train", "-n", "ml", policy=closed)["evictions"]
    assert (waiting["state"], waiting["waitsFor"]["kind"]) == ("putOff", "window")
    paused = {**HEADER, "eviction": [{"rate": 1}], "pause": {"until": "2026-06-02T00:00:00Z", "why": "incident"}}
    (waiting,) = ask.values("pod", "train", "-n", "ml", policy=paused)["evictions"]
    assert "incident" in waiting["waitsFor"]["message"]


def lease(mode: str, in_tree: str = "", **spec: Any) -> dict[str, Any]:
    """What a worker in this mode writes."""
    annotations = {"devicetaint.io/mode": mode, **({"devicetaint.io/in-tree": in_tree} if in_tree else {})}
    return {**LEASE, "metadata": {**LEASE["metadata"], "annotations": annotations}, "spec": {**LEASE["spec"], **spec}}


NOT_HELD: Final = lease("delegated", holderIdentity="")
NO_EXECUTE: Final = {**RULE, "spec": {**RULE["spec"], "taint": make_taint(effect="NoExecute", time_added=SINCE)}}
OBSERVED: Final = "would be evicted, and nothing evicts it\n  by no one, since our worker is in mode observe, due "
GONE: Final = "would be evicted, and nothing evicts it\n  by no one, since no eviction worker is known, due "
BY_US, IN_TREE = "is to be evicted\n  by our worker, due ", "is to be evicted\n  by the in-tree controller, due "


@pytest.mark.parametrize(
    ("rule", "found", "name", "text"),
    [
        (RULE, None, "web-0", BY_US),
        (RULE, lease("delegated", "active"), "web-0", BY_US),
        (RULE, lease("observe"), "web-0", OBSERVED),
        (RULE, NOT_HELD, "train-late", GONE),
        (NO_EXECUTE, None, "web-0", IN_TREE),
        (NO_EXECUTE, NOT_HELD, "web-0", IN_TREE),
        (NO_EXECUTE, lease("observe", "absent"), "train-late", OBSERVED),
        (NO_EXECUTE, lease("replacement"), "web-0", BY_US),
    ],
)
def test_who_evicts_a_pod_is_what_the_lease_of_the_worker_says(
    rule: Any, found: Any, name: str, text: str, live: ExplainRunner
) -> None:
    """M2: the conditions on rules may be those of a worker in another mode, or of one that is gone."""
    dump = [rule, *(each for each in HELD if each is not RULE), *([found] if found else [])]
    live.server.collections[RULES] = [bare(rule)]
    live.server.objects[LEASE_PATH] = found or 404
    dumped = live("pod", name, "-n", "ml", dump=dump)
    assert (dumped[0], f": {text}" in dumped[1]) == (0, True)
    assert live("pod", name, "-n", "ml", *LIVE, dump=None) == dumped
    assert (live.server.connections, live.server.sent) == (1, [])


@pytest.mark.parametrize(
    ("rule", "found", "text"),
    [
        (RULE, lease("delegated"), "carried out by our worker"),
        (RULE, lease("observe"), "carried out by no one, since our worker is in mode observe"),
        (RULE, NOT_HELD, "carried out by no one, since no eviction worker is known"),
        (NO_EXECUTE, lease("delegated", "absent"), "carried out by no one, since our worker is in mode delegated"),
        (NO_EXECUTE, lease("delegated", "active"), "carried out by the in-tree controller"),
        (NO_EXECUTE, lease("replacement"), "carried out by our worker"),
        ({**RULE, "metadata": make_meta("firmware")}, lease("observe"), "evicts no pod"),
    ],
)
def test_who_carries_out_a_taint_of_a_device_is_what_the_lease_says(
    rule: Any, found: Any, text: str, ask: ExplainRunner
) -> None:
    dump = [rule, found, *(each for each in HELD if each is not RULE)]
    assert f": {text}\n" in ask("device", f"{DRIVER}/node-0/gpu-3", dump=dump)[1]


def test_pod_without_claims_uses_no_device(ask: ExplainRunner) -> None:
    assert ask("pod", "bystander", "-n", "ml")[:2] == (
        0,
        "pod ml/bystander uses no device: no taint of a device concerns it\n",
    )


def test_pod_on_no_node_is_not_evicted_before_it_is_on_one(ask: ExplainRunner) -> None:
    unbound = make_pod("soon", "soon", nodeName=None)
    dump = [
        *SLICES,
        SOON,
        unbound,
        {**RULE, "spec": {**RULE["spec"], "taint": make_taint(effect="NoExecute", time_added=None)}},
    ]
    _, text, _ = ask("pod", "soon", "-n", "ml", dump=dump)
    assert text.startswith("pod ml/soon: is not evicted before it is on a node\n")
    (staying,) = ask.values("rule", "firmware", dump=dump)["staying"]
    assert (staying["name"], staying["outcome"]) == ("soon", "NoNode")
    assert "pod ml/soon: is not evicted before it is on a node\n" in ask("rule", "firmware", dump=dump)[1]
    bound = [*dump[:-2], make_pod("soon", "soon"), dump[-1]]
    (eviction,) = ask.values("pod", "soon", "-n", "ml", dump=bound)["evictions"]
    assert eviction["due"] == "2026-06-01T12:10:00Z"  # a server answers with the time of now where there is none


def test_claim_has_its_allocation_and_the_ruling_on_each_toleration(ask: ExplainRunner) -> None:
    found = ask.values("claim", "train-late", "-n", "ml")
    assert [each["device"] for each in found["devices"]] == ["gpu-2"]
    assert found["reservedFor"] == ["pods/train-late"]
    (walk,) = found["policy"]["walks"]
    assert (walk["path"], walk["decision"], walk["decidedBy"]) == (
        "spec.devices.requests[0].exactly.tolerations[0]",
        "denied",
        "default",
    )
    assert walk["rules"][0]["unmet"][0]["field"] == "tolerations.seconds"


def test_device_has_its_taints_users_and_siblings(ask: ExplainRunner) -> None:
    counters = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "1Gi"}}}]}
    parts = [make_device("gpu-0", **counters), make_device("gpu-0-half", **counters), make_device("gpu-1")]
    world = [
        RULE,
        make_slice(parts, meta=make_meta("node-0-gpu")),
        used("train", "node-0/gpu-0"),
        used("half", "node-0/gpu-0-half"),
    ]
    found = ask.values("device", f"{DRIVER}/node-0/gpu-0", dump=world)
    assert (found["published"], [each["rule"] for each in found["taints"]]) == (True, ["firmware"])
    assert [(each["name"], each["reservedFor"]) for each in found["claims"]] == [("train", ["pods/train"])]
    assert [(each["device"], each["claims"]) for each in found["siblings"]] == [("gpu-0-half", ["ml/half"])]
    _, text, _ = ask("device", f"{DRIVER}/node-0/gpu-0", dump=world)
    assert "same hardware: gpu-0-half: gpu.example.com/unhealthy:NoSchedule; reserved for pods/half" in text


def test_text_says_how_many_siblings_of_a_rule_it_leaves_out(ask: ExplainRunner) -> None:
    counters = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "1Gi"}}}]}
    parts = [make_device(f"gpu-{number}", **counters) for number in range(24)]
    one = {**RULE, "spec": {**RULE["spec"], "deviceSelector": {"device": "gpu-0"}}}
    _, text, _ = ask("rule", "firmware", dump=[one, make_slice(parts, meta=make_meta("node-0-gpu"))])
    assert text.count("same hardware, in service: ") == 20
    assert "\n  and 3 more; -o json has all\n" in text


def test_rule_has_what_it_selects_whom_it_hits_and_whether_it_waits_for_a_confirmation(ask: ExplainRunner) -> None:
    found = ask.values("rule", "firmware")
    assert (found["computed"]["devices"], found["computed"]["allocated"], found["evicted"]) == (8, 8, 2)
    states = {each["name"]: each["state"] for each in found["pods"]}
    assert (states["web-0"], states["train-held"], states["soon"]) == ("blocked", "held", "notDue")
    assert found["confirmation"]["needed"] is False
    stopped = json.loads(json.dumps(RULE))
    stopped["status"]["conditions"][0] |= {"status": "False", "reason": "Stopped", "message": "9 pods, confirmed 3"}
    world = [each for each in HELD if each is not RULE]
    found = ask.values("rule", "firmware", dump=[stopped, *world])
    assert found["confirmation"]["needed"] is True
    assert found["confirmation"]["command"].endswith("preview -")
    assert "confirmed 3" in found["confirmation"]["why"]
    silent = {**RULE, "status": {}}
    assert ask.values("rule", "firmware", dump=[silent, *world])["confirmation"]["needed"] is None


def test_data_of_a_taint_is_shown_as_it_is_written(ask: ExplainRunner) -> None:
    """That of a rule is an annotation; the field is in the 1.35-era revision only (N-9)."""
    annotations = {**RULE["metadata"]["annotations"], "devicetaint.io/data": '{"temperature": 97'}
    noted = {**RULE, "metadata": {**RULE["metadata"], "annotations": annotations}}
    published = make_slice([make_device("gpu-0", [make_taint(data={"ecc": [1, 2], "count": 100 * "0"})])])
    world = [noted, published, used("train", "node-0/gpu-0")]
    device = ("device", f"{DRIVER}/node-0/gpu-0")
    whole = '{"count":"' + 100 * "0" + '","ecc":[1,2]}'
    assert [each["data"] for each in ask.values(*device, dump=world)["taints"]] == [whole, '{"temperature": 97']
    for subject in (device, ("rule", "firmware"), ("claim", "train", "-n", "ml")):
        assert ', data {"temperature": 97' in ask(*subject, dump=world)[1]
    assert f", data {whole}: " in ask(*device, dump=world)[1]
    assert ask.values("rule", "firmware")["taint"]["data"] is None


def test_fields_of_a_selector_that_cannot_be_judged_are_named(ask: ExplainRunner) -> None:
    odd = {**RULE, "spec": {**RULE["spec"], "deviceSelector": {"driver": DRIVER, "deviceClassName": "big"}}}
    world = [odd, *(each for each in HELD if each is not RULE)]
    assert ask.values("rule", "firmware", dump=world)["selector"]["notJudged"] == ["deviceClassName"]
    assert "narrowed down by deviceClassName, which cannot be judged here" in ask("rule", "firmware", dump=world)[1]
    assert "if deviceClassName of its selector" in ask("pod", "web-0", "-n", "ml", dump=world)[1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("pod", "web-9", "-n", "ml"), "there is no Pod 'web-9' in namespace ml; did you mean web-0?"),
        (("pod", "web-0"), "there is no Pod 'web-0' in namespace default, but there is one in ml (-n)"),
        (
            ("claim", "train-lat", "-n", "ml"),
            "there is no ResourceClaim 'train-lat' in namespace ml; did you mean train-l",
        ),
        (("rule", "firmwar"), "there is no DeviceTaintRule 'firmwar'; did you mean firmware?"),
        (
            ("device", f"{DRIVER}/node-1/gpu-1"),
            f"there is no Device '{DRIVER}/node-1/gpu-1'; did you mean {DRIVER}/node-",
        ),
        (("device", "gpu-0"), "a device is named as DRIVER/POOL/DEVICE"),
        (("pod", "ml/web-0", "-n", "web"), "-n web does not match the namespace of ml/web-0"),
        (("pod/ml/web-0", "-n", "web"), "-n web does not match the namespace of ml/web-0"),
        (("pod", "ml/web-0/x"), "a Pod is named as NAME or NAMESPACE/NAME"),
        (("pod",), "explains one pod at a time"),
        (("pod", "a", "b"), "explains one pod at a time"),
    ],
)
def test_what_is_not_there_is_said_with_near_matches(words: tuple[str, ...], error: str, ask: ExplainRunner) -> None:
    code, output, said = ask(*words)
    assert (code, output) == (2, "")
    assert error in said


def test_dump_without_rules_says_what_is_unknown(ask: ExplainRunner) -> None:
    found = ask.values("pod", "web-0", "-n", "ml", dump=[each for each in HELD if each["kind"] != "DeviceTaintRule"])
    assert (
        "taints by DeviceTaintRules, and so whether a pod is evicted for one: the dump has no DeviceTaintRule"
        in (found["unknown"])
    )
    _, text, _ = ask("pod", "web-0", "-n", "ml", dump=[each for each in HELD if each["kind"] != "DeviceTaintRule"])
    assert "is not evicted by any taint that could be read" in text


# --- a cluster ----------------------------------------------------------------------------------


@pytest.fixture
def live(ask: ExplainRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExplainRunner]:
    monkeypatch.setattr(running, "datetime", Then)
    objects = [RULE, *SLICES, *CLAIMS, LATE, SOON, *PODS, BUDGET, NAMESPACE]
    tables = cluster_of(*objects, empty=["DeviceClass"])
    with serving(tables, ask.folder):
        ask.server = tables
        yield ask


def test_namespace_is_that_of_the_context_unless_a_flag_names_one(live: ExplainRunner) -> None:
    config = yaml.safe_load((live.folder / "kubeconfig").read_text())
    config["contexts"][0]["context"]["namespace"] = "ml"
    (live.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    assert live.values("pod", "train-late", *LIVE, dump=None)["namespace"] == "ml"


def test_viewer_of_a_namespace_gets_what_is_known_and_what_is_not(live: ExplainRunner) -> None:
    own = {"pods": PODS, "resourceclaims": [*CLAIMS, LATE, SOON], "poddisruptionbudgets": [BUDGET]}
    for path in list(live.server.collections):
        del live.server.collections[path]
        live.server.objects[path] = 403
        prefix, _, name = path.rpartition("/")
        if name in own:
            live.server.collections[f"{prefix}/namespaces/ml/{name}"] = [bare(each) for each in own[name]]
    found = live.values("pod", "train-late", "-n", "ml", *LIVE, dump=None)
    assert [each["device"] for each in found["claims"][0]["devices"]] == ["gpu-2"]
    assert found["claims"][0]["devices"][0]["published"] is None
    unknown = "\n".join(found["unknown"])
    assert "taints by DeviceTaintRules, and so whether a pod is evicted for one: no permission to read" in unknown
    assert "only those of namespace ml are known" in unknown
    code, output, error = live("rule", "firmware", "-n", "ml", *LIVE, dump=None)
    assert (code, output) == (2, "")
    assert "it is not known whether there is a DeviceTaintRule 'firmware': no permission to read" in error


def test_policy_that_may_not_be_read_is_unknown_and_not_guessed(live: ExplainRunner) -> None:
    path = "/api/v1/namespaces/device-taint-webhook/configmaps/device-taint-webhook-policy"
    live.server.objects[path] = 403
    found = live.values("claim", "train-late", "-n", "ml", *LIVE, dump=None, policy=None)
    assert found["policy"] is None
    assert any(each.startswith("what the policy says") for each in found["unknown"])
    _, text, _ = live("claim", "train-late", "-n", "ml", *LIVE, dump=None, policy=None)
    assert "what the policy says of its tolerations is not known" in text


# --- another version ----------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "outcome"), [("1.37.2", "Evicted"), ("1.38.0", "Tolerates")])
def test_named_version_of_the_servers_says_whom_they_evict(version: str, outcome: str, ask: ExplainRunner) -> None:
    """Of 1.38 on, a toleration without effect tolerates NoExecute in the tree, too."""
    claim = used("sloppy", "node-0/gpu-3", tolerations=[ANY_EFFECT])
    dump = [rule("NoExecute"), pool_slice("node-0"), claim, make_pod("sloppy", "sloppy")]
    found = ask.values("pod", "sloppy", "-n", "ml", "--kubernetes-version", version, dump=dump)
    assert [taint["outcome"] for taint in found["claims"][0]["devices"][0]["taints"]] == [outcome]
