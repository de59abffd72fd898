"""What `export-vap` prints, judged by the real API server and compared with what the webhook says.

VAP_SEED and VAP_POLICIES choose other generated policies; both are printed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.apiserver.fallback import NOT_ASKED, Fallback, is_refused
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.offline import NAMES, judge_of
from tests.apiserver.policy.rows import POLICY, ROWS
from tests.apiserver.policy.stage import Stage
from tests.apiserver.test_cases import MINOR, ask, on_this_release
from tests.apiserver.vap_requests import (
    KNOWN,
    NAMESPACES,
    ClaimRequest,
    RuleRequest,
    claim_policies,
    claim_requests,
    rule_policies,
    rule_requests,
    stored_rules,
)
from tests.builders import make_claim, make_meta, make_toleration
from tests.cases.corpus import cases
from tests.controlplane.client import Reply, path
from tests.controlplane.processes import wait_until
from webhook.commands import export_vap
from webhook.commands.shared.main import main_of
from webhook.policy.match import Requester
from webhook.policy.model import (
    CLAIM_CONTROLLER,
    Action,
    ImpactSettings,
    Match,
    Policy,
    RequesterMatch,
    Rule,
    TaintMatch,
    TolerationMatch,
)
from webhook.policy.vap.export import Coverage

POLICIES: Final = int(os.environ.get("VAP_POLICIES", "12"))
SEED: Final = int(os.environ.get("VAP_SEED", "1"))
REQUESTS: Final = 60
ENOUGH: Final = 20
OF_RULES: Final = 37
"""Rules are made in versions and with effects that this release has."""
newest = pytest.mark.skipif(MINOR < OF_RULES, reason="the rules here are those of 1.37")
GENERATED: Final = settings(
    max_examples=POLICIES,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def fallback(request: pytest.FixtureRequest) -> Iterator[Fallback]:
    """A control plane without webhook; its namespaces and users are those of the policy's table."""
    gates = {"DRAListTypeAttributes": True} if MINOR >= 36 else {"DRAPartitionableDevices": True}
    with own_stage(request, feature_gates=gates) as stage:
        for name, labels in NAMESPACES.items():
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
            url = path("v1", "namespaces", name=name)
            assert stage.client.apply(url, namespace, field_manager="test").ok
        for rule in stored_rules() if MINOR >= OF_RULES else ():
            collection = path("resource.k8s.io/v1", "devicetaintrules")
            assert stage.client.create(collection, rule).ok
        yield Fallback(stage.plane)


@pytest.fixture(autouse=True)
def cleared(fallback: Fallback) -> Iterator[None]:
    yield
    fallback.clear()


# --- the table and the corpus -------------------------------------------------------------------


def test_the_table_is_refused_where_it_should_be_and_nowhere_else(fallback: Fallback) -> None:
    fallback.use(judge_of(POLICY).policy)
    counted: Counter[tuple[bool, bool]] = Counter()
    faults = []
    for row in (row for row in ROWS if row.operation == "create"):
        reply = fallback.plane.client.acting_as(*row.requester).create(row.collection, row.manifest, dry_run=True)
        asked = row.expected.asked
        word = fallback.word(row.manifest, None, Requester(*row.requester), NAMES) if asked else NOT_ASKED
        faults += [f"{row}: {fault}" for fault in [fallback.fault(reply, word)] if fault]
        counted[word.allowed, is_refused(reply)] += 1
    assert faults == []
    assert counted[False, True] >= ENOUGH
    assert counted[True, False] >= ENOUGH


STRICT: Final = Policy(
    default=Action.DENY,
    rules=(Rule("no-maintenance", Action.DENY, Match(tolerations=TolerationMatch(keys=("maint*",)))),),
    taint_rules=(Rule("no-eviction", Action.DENY, Match(taints=TaintMatch(effects=("NoExecute",)))),),
    impact=ImpactSettings(two_step=True),
)


@pytest.mark.parametrize("policy", [pytest.param(Policy(), id="built-in"), pytest.param(STRICT, id="strict")])
@pytest.mark.whole
def test_no_case_of_the_corpus_is_refused_that_the_webhook_allows(policy: Policy, fallback: Fallback) -> None:
    plane = fallback.plane
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = plane.client.create(path("authentication.k8s.io/v1", "selfsubjectreviews"), review).object
    groups = [name for name in who["status"]["userInfo"]["groups"] if name != "system:authenticated"]
    admin = Requester(who["status"]["userInfo"]["username"], tuple(groups))
    fallback.use(policy)
    refused: Counter[str] = Counter()
    faults = []
    for case in filter(on_this_release, cases()):
        reply = ask(plane, case).reply
        word = fallback.word(case.object, case.old, admin, NAMES, sub_resource=case.sub_resource)
        faults += [f"{case.path}: {fault}" for fault in [fallback.fault(reply, word)] if fault]
        refused[case.kind.kind] += is_refused(reply)
    print(f"\n{dict(refused)} refused of {len(cases())}")
    assert faults == []
    assert refused["DeviceTaintRule"] > 0 or MINOR < OF_RULES
    assert refused["ResourceClaim"] > 0


# --- generated ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.whole
def test_generated_policies_and_claims(fallback: Fallback, capsys: pytest.CaptureFixture[str]) -> None:
    counted: Counter[str] = Counter()
    faults: list[str] = []

    @seed(SEED)
    @GENERATED
    @given(claim_policies, st.lists(claim_requests, min_size=REQUESTS, max_size=REQUESTS))
    def judge(policy: Policy, requests: list[ClaimRequest]) -> None:
        fallback.use(policy)
        for each in requests:
            reply = fallback.plane.client.acting_as(each.requester.username, each.requester.groups).create(
                each.collection, each.manifest, dry_run=True
            )
            word = fallback.word(each.manifest, None, each.requester, KNOWN) if each.asked_about else NOT_ASKED
            counted.update(_facts(reply.ok, word.allowed, word.by & fallback.full))
            counted["by the controller"] += each.requester.username == CLAIM_CONTROLLER
            counted["refused to the controller"] += each.requester.username == CLAIM_CONTROLLER and not reply.ok
            fault = fallback.fault(reply, word) or _not_ours(reply)
            if fault:
                faults.append(f"{fault}\n{each}\n{word}\n{policy}")

    judge()
    with capsys.disabled():
        print(f"\n{POLICIES} policies (seed {SEED}): {dict(counted)}")
    assert faults == [], faults[0]
    assert min(counted["refused"], counted["allowed"], counted["by a full rule"]) >= ENOUGH


@newest
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.whole
def test_generated_policies_and_taint_rules(fallback: Fallback, capsys: pytest.CaptureFixture[str]) -> None:
    counted: Counter[str] = Counter()
    faults: list[str] = []
    collection = path("resource.k8s.io/v1", "devicetaintrules")
    stored = {each["metadata"]["name"]: each for each in fallback.plane.client.get(collection).items}

    @seed(SEED)
    @GENERATED
    @given(rule_policies, st.lists(rule_requests, min_size=REQUESTS, max_size=REQUESTS))
    def judge(policy: Policy, requests: list[RuleRequest]) -> None:
        fallback.use(policy)
        for each in requests:
            client = fallback.plane.client.acting_as(each.requester.username, each.requester.groups)
            place = path(f"resource.k8s.io/{each.version}", "devicetaintrules")
            old = each.old_of(stored) if each.stored else None
            manifest = each.manifest(old)
            if old is None:
                reply = client.create(place, manifest, dry_run=True)
            else:
                reply = client.replace(f"{place}/{each.stored}", manifest, dry_run=True)
            word = fallback.word(manifest, old, each.requester, KNOWN)
            counted.update(_facts(reply.ok, word.allowed, word.by & fallback.full))
            counted["updates refused"] += old is not None and not reply.ok
            fault = fallback.fault(reply, word) or _not_ours(reply)
            if fault:
                faults.append(f"{fault}\n{json.dumps(manifest)}\n{json.dumps(old)}\n{each.requester}\n{word}\n{policy}")

    judge()
    with capsys.disabled():
        print(f"\n{POLICIES} policies (seed {SEED}): {dict(counted)}")
    assert faults == [], faults[0]
    assert min(counted["refused"], counted["allowed"], counted["by a full rule"]) >= ENOUGH
    assert counted["updates refused"] >= ENOUGH // 4


def _facts(granted: bool, allowed: bool, full: Any) -> Iterator[str]:  # noqa: FBT001 -- two verdicts
    yield "allowed" if granted else "refused"
    if not allowed:
        yield "refused by the webhook"
    if full:
        yield "by a full rule"


def _not_ours(reply: Reply) -> str:
    if MINOR < 35 and 'Unsupported value: "None"' in reply.message:
        return ""
    return "" if reply.ok or is_refused(reply) else f"not valid: {reply.message}"


# --- claims as large as can be ------------------------------------------------------------------


# What CEL, regular expressions, JSON or the export itself could take for more than a character of a name.
ODD_NAMES: Final = (
    *(r"CORP\mila", r"CORP\nils", r"x\Domain Users", 'it\'s "q"', "variables.nothing", "variables.rank", r"a.b\d+c"),
    *('a" && true || "b', r"\\server\a$", "{x}[0]", "a%41", "#~`"),
)


@pytest.mark.whole
def test_names_are_texts_whatever_characters_they_have(fallback: Fallback) -> None:
    unsent = ("Зоя", "line\nbreak", "\u2028", "\U0001d4b3", "\x7f")  # only expressions have to take them
    users = (*ODD_NAMES[::2], *unsent, r"?.b\d*")
    who = RequesterMatch(users=users, groups=(r"CORP\*", r"?\Domain*", *ODD_NAMES[::3]))
    fallback.use(Policy(default=Action.DENY, rules=(Rule("odd", Action.ALLOW, Match(requesters=who)),)))
    verdicts = []
    for name in ODD_NAMES:
        for requester in (Requester(name, ()), Requester("mila", (name,)), Requester(f"{name}x", ())):
            claim = make_claim([make_toleration()], meta=make_meta("odd", namespace="default"))
            client = fallback.plane.client.acting_as(requester.username, requester.groups)
            reply = client.create(
                path("resource.k8s.io/v1", "resourceclaims", namespace="default"), claim, dry_run=True
            )
            word = fallback.word(claim, None, requester, KNOWN)
            assert fallback.fault(reply, word) == "", requester
            assert is_refused(reply) is not word.allowed, (requester, reply.message)
            verdicts.append(word.allowed)
    assert min(verdicts.count(True), verdicts.count(False)) >= len(ODD_NAMES) // 2


def large_claim(key: str, last: str) -> dict[str, Any]:
    """32 requests with 8 alternatives of 16 tolerations, all of one key but the last."""
    keys = [key] * 16
    alternatives = [[{"key": name, "operator": "Exists"} for name in keys] for _ in range(8)]
    requests: list[Any] = [
        {
            "name": f"r{number}",
            "firstAvailable": [
                {"name": f"a{index}", "deviceClassName": "gpu", "tolerations": list(tolerations)}
                for index, tolerations in enumerate(alternatives)
            ],
        }
        for number in range(32)
    ]
    requests[-1]["firstAvailable"][-1]["tolerations"][-1] = {"key": last, "operator": "Exists"}
    metadata = {"name": "large", "namespace": "train-a"}
    spec = {"devices": {"requests": requests}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


@pytest.mark.whole
def test_the_largest_claim_does_not_cost_too_much(fallback: Fallback) -> None:
    """With rules enough that one expression, and one policy, would not do; and it is the last that allows."""
    patterns = [*(f"a{n}.example.com/*y" for n in range(40)), *(f"b{n}.example.com/?*y" for n in range(4))]
    rules = tuple(
        Rule(f"allows-{n}", Action.ALLOW, Match(tolerations=TolerationMatch(keys=(pattern,))))
        for n, pattern in enumerate(patterns)
    )
    fallback.use(Policy(default=Action.DENY, rules=rules))
    names = [each["metadata"]["name"] for each in fallback.exported.objects]
    assert "device-taint-webhook-tolerations-2" in names
    assert {each.coverage for each in fallback.exported.rules} == {Coverage.FULL}
    collection = path("resource.k8s.io/v1", "resourceclaims", namespace="train-a")
    key = f"b3.example.com/{'x' * 62}y"
    reply = fallback.plane.client.create(collection, large_claim(key, key), dry_run=True)
    assert reply.ok, reply.message
    reply = fallback.plane.client.create(collection, large_claim(key, "b3.example.com/z"), dry_run=True)
    assert "(rule default)" in reply.message


# --- labels of namespaces -----------------------------------------------------------------------

TIER: Final = "tier.example.com/name"


def test_trusted_labels_are_for_those_who_may_set_them(fallback: Fallback) -> None:
    plane = fallback.plane
    stage = Stage(plane)
    stage.create("v1", "Namespace", "labelled", labels={TIER: "low"})
    rbac = "rbac.authorization.k8s.io/v1"
    namespaces = {
        "apiGroups": [""],
        "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
        "verbs": ["*"],
    }
    special = {"apiGroups": ["policy.devicetaint.io"], "resources": ["trustednamespacelabels"], "verbs": ["set"]}
    for user, rules in (("editor", [namespaces]), ("keeper", [namespaces, special])):
        stage.create(rbac, "ClusterRole", f"test-{user}", rules=rules)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"test-{user}"}
        stage.create(rbac, "ClusterRoleBinding", f"test-{user}", roleRef=ref, subjects=[subject])
    fallback.use(Policy(trusted_namespace_labels=("kubernetes.io/metadata.name", TIER)), protect_labels=True)
    editor, keeper = (plane.client.acting_as(user) for user in ("editor", "keeper"))
    url = path("v1", "namespaces", name="labelled")
    wait_until(lambda: editor.get(url).ok and keeper.get(url).ok, "the authorizer knows the roles")
    stored = plane.client.get(url).object
    higher = {**stored, "metadata": {**stored["metadata"], "labels": {**stored["metadata"]["labels"], TIER: "high"}}}
    fresh = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh", "labels": {TIER: "high"}}}
    for change in ({TIER: "high"}, {TIER: None}):
        patch = {"metadata": {"labels": change}}
        assert is_refused(editor.patch(url, patch, dry_run=True)), change
        assert keeper.patch(url, patch, dry_run=True).ok
    assert editor.patch(url, {"metadata": {"labels": {"other": "yes"}}}, dry_run=True).ok
    for way in ("status", "finalize"):
        assert is_refused(editor.replace(f"{url}/{way}", higher, dry_run=True)), way
        assert keeper.replace(f"{url}/{way}", higher, dry_run=True).ok
    reply = editor.create(path("v1", "namespaces"), fresh, dry_run=True)
    assert f"only who may set trustednamespacelabels.policy.devicetaint.io may change labels {TIER}" in reply.message
    assert keeper.create(path("v1", "namespaces"), fresh, dry_run=True).ok
    plain = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain"}}
    assert editor.create(path("v1", "namespaces"), plain, dry_run=True).ok


@newest
def test_nobody_in_a_rush_needs_a_policy_of_ours_gone(fallback: Fallback) -> None:
    """Deletion and clean-up go on: a finalizer of a rule that is refused today can be taken off."""
    collection = path("resource.k8s.io/v1", "devicetaintrules")
    spec = {"deviceSelector": {}, "taint": {"key": "example.com/x", "effect": "NoExecute"}}
    metadata = {"name": "leaving", "finalizers": ["example.com/hold"]}
    rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}
    assert fallback.plane.client.create(collection, rule).ok
    fallback.use(STRICT)
    url = f"{collection}/leaving"
    assert is_refused(fallback.plane.client.create(collection, {**rule, "metadata": {"name": "new"}}, dry_run=True))
    assert fallback.plane.client.delete(url).ok
    assert fallback.plane.client.patch(url, {"metadata": {"finalizers": None}}).ok
    assert fallback.plane.client.get(url).code == 404


@newest
def test_r1_a_rule_that_is_being_deleted_gets_no_annotation_that_makes_it_evict(fallback: Fallback) -> None:
    collection = path("resource.k8s.io/v1", "devicetaintrules")
    spec = {"deviceSelector": {}, "taint": {"key": "example.com/x", "effect": "NoSchedule"}}
    metadata = {"name": "kept", "finalizers": ["example.com/hold"]}
    rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}
    client, url = fallback.plane.client, f"{collection}/kept"
    assert client.create(collection, rule).ok
    fallback.use(STRICT)
    assert client.delete(url).ok
    assert is_refused(client.patch(url, {"metadata": {"annotations": {"devicetaint.io/evict": "true"}}}))
    assert client.patch(url, {"metadata": {"annotations": {"example.com/note": "x"}}}).ok
    assert client.patch(url, {"metadata": {"finalizers": None}}).ok
    assert client.get(url).code == 404


# --- as people apply them -----------------------------------------------------------------------


def test_what_is_printed_applies_twice_without_a_change_and_leaves_nothing_behind(
    fallback: Fallback, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the commands of docs/integrations.md."""
    plane = fallback.plane
    group = "admissionregistration.k8s.io/v1"
    kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    label = "app.kubernetes.io/component=fallback"
    prune = [f"--prune-allowlist={group}/ValidatingAdmissionPolicy{kind}" for kind in ("", "Binding")]

    def stored(kind: str) -> list[Any]:
        return plane.client.get(path(group, kind), labelSelector=label).items

    def applied(policy: dict[str, Any]) -> dict[str, str]:
        (tmp_path / "policy.yaml").write_text(json.dumps(policy))
        assert main_of(export_vap, ["--policy", str(tmp_path / "policy.yaml"), "--protect-labels"]) == 0
        (tmp_path / "fallback.yaml").write_text(capsys.readouterr().out)
        done = plane.kubectl("apply", "--prune", "-l", label, *prune, "-f", tmp_path / "fallback.yaml")
        assert done.code == 0, done
        listed = [(kind, each["metadata"]) for kind in kinds for each in stored(kind)]
        return {f"{kind} {metadata['name']}": metadata["resourceVersion"] for kind, metadata in listed}

    first = applied(POLICY)
    assert applied(POLICY) == first
    assert applied({**POLICY, "mode": "off"}).keys() == {name for name in first if name.endswith("-labels")}
    for kind in kinds:
        assert plane.kubectl("delete", kind, "-l", label).code == 0
        assert stored(kind) == []
