"""Claims made from templates are judged by the template's author, whom nobody can forge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.apiserver.policy.pods import (
    CLAIMS,
    NAMESPACE,
    TEMPLATES,
    Json,
    PodWithClaim,
    acting_as,
    author_in,
    make_template,
    template_url,
    unused_name,
)
from tests.apiserver.policy.rows import DANA, POLICY, Identity
from tests.apiserver.policy.stage import REQUESTED_BY, Stage, make_policy
from tests.apiserver.registration.samples import MANIFESTS
from tests.builders import make_claim
from tests.controlplane.processes import wait_until

MILA: Final = Identity("mila", ("ml-research",))
CARL: Final = Identity("carl", ("contractors",))
ONLY_MACHINE_LEARNERS: Final = "slow.example.com/clock:NoSchedule"
EVERYBODY: Final = "firmware.example.com/update:NoSchedule"
ENTRY: Final = "claims.validate.devicetaint.io"
AUTHOR_POLICY: Final = MANIFESTS / "base/author-policy.yaml"


@pytest.fixture
def by_mila(stage: Stage) -> Iterator[Json]:
    """A template that tolerates what only people like its author may."""
    template = make_template(ONLY_MACHINE_LEARNERS)
    yield acting_as(stage, MILA).create(TEMPLATES, template).object
    stage.client.delete(template_url(template))


def _rules(stage: Stage, claim: Json) -> str:
    """Those that the audit log names; none if nobody had anything to say."""
    return stage.audited(ENTRY, "create", f"{CLAIMS}/{claim['metadata']['name']}").get("rules", "")


# --- known ------------------------------------------------------------------------------------------


def test_a_claim_names_the_author_of_its_template_and_is_judged_by_them(stage: Stage, by_mila: Json) -> None:
    stage.use({**POLICY, "generatedClaims": "enforce"})
    assert author_in(by_mila) == "mila"
    with PodWithClaim(stage, by_mila, CARL) as pod:
        claim = pod.claim()
    assert author_in(claim) == "mila"
    named = json.loads(claim["metadata"]["annotations"][REQUESTED_BY])
    assert sorted(named["groups"]) == ["ml-research", "system:authenticated"]
    assert _rules(stage, claim) == "machine-learners-are-patient"


def test_author_is_known_of_a_template_with_everything_in_it(stage: Stage) -> None:
    """R11: what else it asks for does not matter."""
    stage.use({**POLICY, "generatedClaims": "enforce"})
    template = make_template(ONLY_MACHINE_LEARNERS)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    exact = request["exactly"]
    exact |= {"selectors": [{"cel": {"expression": 'device.driver  ==  "gpu.example.com"'}}], "count": 2}
    exact["capacity"] = {"requests": {"memory": "2048Mi"}}
    alternatives = [{"name": name, "deviceClassName": "gpu.example.com"} for name in ("one", "all")]
    alternatives[1]["allocationMode"] = "All"
    template["spec"]["spec"]["devices"] |= {
        "requests": [request, {"name": "other", "firstAvailable": alternatives}],
        "constraints": [{"matchAttribute": "gpu.example.com/numa"}],
        "config": [
            {"opaque": {"driver": "gpu.example.com", "parameters": {"share": 1.0, "b": None, "a": ["x", 10**18]}}}
        ],
    }
    stored = acting_as(stage, MILA).create(TEMPLATES, template).object
    with PodWithClaim(stage, stored, CARL) as pod:
        claim = pod.claim()
    assert author_in(claim) == "mila"
    assert _rules(stage, claim) == "machine-learners-are-patient"
    stage.client.delete(template_url(stored))


_NO_MORE: Final = {
    "name": "no-more-of-that",
    "action": "deny",
    "match": {"requesters": {"users": ["mila"]}, "tolerations": {"keys": ["slow.example.com/*"]}},
}


def test_a_claim_that_its_author_may_no_longer_have_is_refused(stage: Stage, by_mila: Json) -> None:
    """To the pod: it waits, and says why."""
    stage.use(make_policy(generatedClaims="enforce", rules=[_NO_MORE]))
    with PodWithClaim(stage, by_mila, DANA) as pod:
        refusal = pod.refusal()
        assert f'admission webhook "{ENTRY}" denied the request' in refusal
        assert '"mila" in namespace "lab"' in refusal
        assert "(rule no-more-of-that)" in refusal
        stage.use(make_policy(generatedClaims="warn", rules=[_NO_MORE]))
        assert author_in(pod.claim()) == "mila"  # and the controller gets it through as soon as it may


def test_by_default_such_a_claim_is_made_and_the_audit_log_says_so(stage: Stage, by_mila: Json) -> None:
    stage.use(make_policy(rules=[_NO_MORE]))
    with PodWithClaim(stage, by_mila, DANA) as pod:
        claim = pod.claim()
    audited = stage.audited(ENTRY, "create", f"{CLAIMS}/{claim['metadata']['name']}")
    assert (audited["decision"], audited["rules"]) == ("warned", "no-more-of-that")


# --- forged -----------------------------------------------------------------------------------------


def _annotation(template: Json) -> dict[str, str]:
    return {REQUESTED_BY: template["spec"]["metadata"]["annotations"][REQUESTED_BY]}


def test_an_author_written_by_hand_is_overwritten(stage: Stage) -> None:
    named = '{"username":"mila","groups":["ml-research","system:authenticated"]}'
    template = make_template(EVERYBODY, annotations={REQUESTED_BY: named, "example.com/kept": "yes"})
    stored = acting_as(stage, DANA).create(TEMPLATES, template, dry_run=True).object
    assert author_in(stored) == "dana"
    assert stored["spec"]["metadata"]["annotations"]["example.com/kept"] == "yes"


def test_an_author_copied_from_another_template_is_overwritten(stage: Stage, by_mila: Json) -> None:
    template = make_template(ONLY_MACHINE_LEARNERS, annotations=_annotation(by_mila))
    reply = acting_as(stage, DANA).create(TEMPLATES, template, dry_run=True)
    assert reply.code == 403
    assert '"dana" in namespace "lab"' in reply.message


def test_an_author_in_a_claim_made_by_hand_is_dropped_with_a_warning(stage: Stage, by_mila: Json) -> None:
    """As exports and restores of generated claims bring it."""
    metadata = {"name": unused_name(), "namespace": NAMESPACE, "annotations": _annotation(by_mila)}
    claim = make_claim(meta=metadata) | {"spec": make_template(EVERYBODY)["spec"]["spec"]}
    reply = acting_as(stage, DANA).create(CLAIMS, claim, dry_run=True)
    assert REQUESTED_BY not in reply.object["metadata"].get("annotations", {})
    (warning,) = reply.warnings
    assert warning.startswith(f"metadata.annotations[{REQUESTED_BY}]: ")


@pytest.fixture(scope="module")
def orphan(installed: Stage) -> Iterator[Json]:
    """A template without an author, from a time when the webhook was down."""
    installed.use(POLICY)
    named = acting_as(installed, MILA).create(TEMPLATES, make_template(ONLY_MACHINE_LEARNERS)).object
    wider = "slow.example.com/clock"
    installed.stop_webhook()
    try:
        dana = acting_as(installed, DANA)
        forged = make_template(wider, annotations=_annotation(named))
        wait_until(lambda: dana.create(TEMPLATES, forged, dry_run=True).code == 403, "the API server refuses it")
        bare = dana.create(TEMPLATES, make_template(wider)).object
    finally:
        installed.start_webhook()
        installed.register()
    assert author_in(bare) == ""
    yield bare
    for template in (named, bare):
        installed.client.delete(template_url(template))


@pytest.mark.parametrize(
    ("unknown_author", "generated_claims", "made", "rules"),
    [
        ("allow", "enforce", True, ""),
        ("warn", "warn", True, "default,unknownAuthor"),
        ("warn", "enforce", False, "default"),
        ("deny", "warn", False, "unknownAuthor"),
    ],
)
def test_a_claim_of_an_unknown_author_is_made_or_refused_as_the_policy_says(
    stage: Stage, orphan: Json, unknown_author: str, generated_claims: str, *, made: bool, rules: str
) -> None:
    stage.use({**POLICY, "unknownAuthor": unknown_author, "generatedClaims": generated_claims})
    with PodWithClaim(stage, orphan, DANA) as pod:
        if made:
            assert _rules(stage, pod.claim()) == rules
        else:
            assert f"(rule {rules})" in pod.refusal()


@pytest.mark.whole
def test_authors_are_known_after_a_restart(stage: Stage, by_mila: Json) -> None:
    """Nothing of them is kept in the process."""
    stage.restart_webhook()
    stage.use({**POLICY, "unknownAuthor": "deny", "generatedClaims": "enforce"})
    with PodWithClaim(stage, by_mila, CARL) as pod:
        assert author_in(pod.claim()) == "mila"


def test_without_the_policy_pods_wait_until_it_is_back(stage: Stage, by_mila: Json) -> None:
    """With unknownAuthor deny; as documented."""
    stage.use({**POLICY, "unknownAuthor": "deny", "generatedClaims": "enforce"})
    assert stage.plane.kubectl("delete", "-f", AUTHOR_POLICY).code == 0
    try:
        wait_until(lambda: stage.metric("authors_proved") == {"": 0.0}, "authors are unknown")
        with PodWithClaim(stage, by_mila, CARL) as pod:
            assert "ValidatingAdmissionPolicy device-taint-webhook-authors is missing" in pod.refusal()
            assert stage.plane.kubectl("apply", "-f", AUTHOR_POLICY).code == 0
            assert author_in(pod.claim()) == "mila"
    finally:
        assert stage.plane.kubectl("apply", "-f", AUTHOR_POLICY).code == 0


# --- edits ------------------------------------------------------------------------------------------


def test_kubectl_apply_twice_and_with_a_label(stage: Stage) -> None:
    template = make_template(EVERYBODY)
    try:
        first = _applied(stage, template)
        assert author_in(first) == "dana"
        assert _applied(stage, template) == first
        template["metadata"]["labels"] = {"changed": "yes"}
        assert _applied(stage, template)["spec"] == first["spec"]
    finally:
        stage.client.delete(template_url(template))


def _applied(stage: Stage, template: Json) -> Json:
    done = stage.plane.kubectl("apply", "-f", "-", stdin=json.dumps(template), user="dana")
    assert (done.code, done.stderr) == (0, ""), done
    return stage.client.get(template_url(template)).object


def test_server_side_apply_of_the_same_manifest_changes_nothing(stage: Stage) -> None:
    template, dana = make_template(EVERYBODY), acting_as(stage, DANA)
    url = template_url(template)
    try:
        first = dana.apply(url, template, field_manager="gitops").object
        second = dana.apply(url, template, field_manager="gitops").object
        assert author_in(first) == "dana"
        assert second == first
        by_another = acting_as(stage, CARL).apply(url, template, field_manager="another").object
        assert by_another["spec"] == first["spec"]
    finally:
        stage.client.delete(url)


def test_the_authors_own_manifest_can_be_put_again(stage: Stage) -> None:
    template = make_template(EVERYBODY)
    url = template_url(template)
    dana = acting_as(stage, DANA)
    stored = dana.create(TEMPLATES, template).object
    try:
        template["metadata"] |= {"resourceVersion": stored["metadata"]["resourceVersion"], "labels": {"changed": "yes"}}
        answered = dana.replace(url, template).object
        assert answered["spec"] == stored["spec"]
        assert answered["metadata"]["labels"] == {"changed": "yes"}
    finally:
        stage.client.delete(url)


@pytest.mark.parametrize(
    "annotations",
    [{REQUESTED_BY: '{"username":"olga"}'}, {REQUESTED_BY: None}, None],
    ids=["another author", "no author", "no annotations"],
)
def test_an_edited_author_is_put_back(stage: Stage, by_mila: Json, annotations: dict[str, str | None] | None) -> None:
    patch = {"spec": {"metadata": {"annotations": annotations}}}
    answered = acting_as(stage, MILA).patch(template_url(by_mila), patch).object
    assert answered["spec"] == by_mila["spec"]


def test_another_spec_is_still_immutable(stage: Stage, by_mila: Json) -> None:
    requests = make_template(EVERYBODY)["spec"]["spec"]
    reply = acting_as(stage, MILA).patch(template_url(by_mila), {"spec": {"spec": requests}})
    assert (reply.code, [cause.field for cause in reply.causes]) == (422, ["spec"])
    assert "field is immutable" in reply.message
