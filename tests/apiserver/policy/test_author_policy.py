"""The API server itself refuses a template in the name of another author, whatever the webhook does (R2)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.policy.pods import (
    NAMESPACE,
    TEMPLATES,
    Json,
    acting_as,
    author_in,
    make_template,
    template_url,
    unused_name,
)
from tests.apiserver.policy.rows import POLICY, Identity
from tests.apiserver.policy.stage import REQUESTED_BY, Stage, health
from tests.apiserver.registration.samples import MANIFESTS
from tests.builders import make_claim
from tests.controlplane.client import Reply, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from webhook.admission.claim_view import GROUPS_MAX_BYTES
from webhook.policy.model import CLAIM_CONTROLLER
from webhook.policy.vap.objects import ADMISSION_RESOURCES

MILA: Final = Identity("mila", ("ml-research", "system:authenticated"))
CARL: Final = Identity("carl", ("contractors", "system:authenticated"))
MANY: Final = Identity("mila", tuple(f"group-{number:03}-{'g' * 90}" for number in range(200)))
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
TOLERATED: Final = "firmware.example.com/update:NoSchedule"
DENIED: Final = "ValidatingAdmissionPolicy 'device-taint-webhook-authors'"
WAY_OUT: Final = "remove the annotation, the webhook writes it"
OBJECTS: Final = {
    kind: path("admissionregistration.k8s.io/v1", plural, name="device-taint-webhook-authors")
    for kind, plural in ADMISSION_RESOURCES.items()
}


def annotation_of(who: Identity, **fields: Any) -> str:
    """With other fields than the webhook's, if they are given."""
    text = {"username": who.user, "groups": list(who.groups), **fields}
    return json.dumps(text, separators=(",", ":"), ensure_ascii=False)


def template_naming(annotation: str | None, version: str = "v1", namespace: str = NAMESPACE) -> Json:
    template = make_template(TOLERATED, annotations=None if annotation is None else {REQUESTED_BY: annotation})
    template["apiVersion"] = f"{GROUP}/{version}"
    template["metadata"]["namespace"] = namespace
    if version == "v1beta1":
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        template["spec"]["spec"]["devices"]["requests"] = [{"name": request["name"], **request["exactly"]}]
    return template


def sent(stage: Stage, who: Identity, template: Json, *, dry_run: bool = True) -> Reply:
    collection = path(template["apiVersion"], "resourceclaimtemplates", namespace=template["metadata"]["namespace"])
    return acting_as(stage, who).create(collection, template, dry_run=dry_run)


def refused(reply: Reply) -> bool:
    """Whether it was the policy that refused, with what to do."""
    return reply.code == 403 and DENIED in reply.message and WAY_OUT in reply.message


@pytest.fixture(scope="module")
def guarded(installed: Stage) -> Stage:
    """With the policy of the base in force; the webhook is called."""
    installed.use(POLICY)
    wait_in_force(installed)
    return installed


def wait_in_force(stage: Stage) -> None:
    """Waits until the API server refuses a forged author; the webhook is never asked about this namespace."""
    forged = template_naming(annotation_of(CARL), namespace="kube-system")
    wait_until(lambda: refused(sent(stage, MILA, forged)), "the policy is in force")


@pytest.fixture(scope="module")
def by_mila(guarded: Stage) -> Iterator[Json]:
    stored = sent(guarded, MILA, template_naming(None), dry_run=False).object
    yield stored
    guarded.client.delete(template_url(stored))


@pytest.fixture
def alone(guarded: Stage) -> Iterator[Stage]:
    """The webhook is not registered."""
    files = guarded._files
    guarded.unregister()
    yield guarded
    guarded.register(files)


@pytest.fixture
def hanging(guarded: Stage) -> Iterator[Stage]:
    """The webhook is called and does not answer; entries for templates ignore that, after the time they come with."""
    files = guarded._files
    guarded.unregister()
    guarded.register(files, timeout_seconds=None)
    os.kill(guarded.webhook.process.pid, signal.SIGSTOP)
    yield guarded
    os.kill(guarded.webhook.process.pid, signal.SIGCONT)
    wait_until(guarded.webhook.ready, "it answers again")
    guarded.unregister()
    guarded.register(files)


def test_policy_is_one_that_the_api_server_finds_nothing_wrong_with(guarded: Stage) -> None:
    url = path("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", name="device-taint-webhook-authors")
    stored = guarded.client.get(url).object
    assert stored.get("status", {}).get("typeChecking", {}).get("expressionWarnings", []) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_webhook_writes_is_let_through_in_every_version(guarded: Stage, version: str) -> None:
    stored = sent(guarded, MILA, template_naming(None, version)).object
    assert author_in(stored) == "mila"


@pytest.mark.parametrize("version", VERSIONS)
def test_foreign_author_is_replaced_while_the_webhook_answers(guarded: Stage, version: str, by_mila: Json) -> None:
    copied = by_mila["spec"]["metadata"]["annotations"][REQUESTED_BY]
    assert author_in(sent(guarded, CARL, template_naming(copied, version)).object) == "carl"


@pytest.mark.parametrize("version", VERSIONS)
def test_foreign_author_is_refused_while_the_webhook_is_not_asked(alone: Stage, version: str, by_mila: Json) -> None:
    copied = by_mila["spec"]["metadata"]["annotations"][REQUESTED_BY]
    reply = sent(alone, CARL, template_naming(copied, version))
    assert refused(reply)
    assert 'names another author than the requester, "carl"' in reply.message
    assert sent(alone, MILA, template_naming(copied, version)).ok
    assert sent(alone, CARL, template_naming(None, version)).ok


@pytest.mark.whole
def test_foreign_author_is_refused_while_the_webhook_hangs(hanging: Stage, by_mila: Json) -> None:
    """The entries for templates have failurePolicy Ignore: without the policy this is stored."""
    copied = by_mila["spec"]["metadata"]["annotations"][REQUESTED_BY]
    assert refused(sent(hanging, CARL, template_naming(copied)))


def test_kubectl_tells_who_restores_an_exported_template_what_to_do(alone: Stage, by_mila: Json) -> None:
    exported = {**by_mila, "metadata": {"name": unused_name(), "namespace": NAMESPACE}}
    done = alone.plane.kubectl("apply", "-f", "-", stdin=json.dumps(exported))
    assert done.code == 1
    assert WAY_OUT in done.stderr
    del exported["spec"]["metadata"]["annotations"][REQUESTED_BY]
    done = alone.plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(exported))
    assert done.code == 0, done


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param("", id="nothing", marks=pytest.mark.whole),
        pytest.param("mila", id="no JSON"),
        pytest.param(annotation_of(Identity("mila", ())), id="an empty list of groups", marks=pytest.mark.whole),
        pytest.param('{"username":"mila"}', id="without the groups", marks=pytest.mark.whole),
        pytest.param(annotation_of(Identity("mila", MILA.groups[::-1])), id="groups in another order"),
        pytest.param(annotation_of(Identity("mila", (*MILA.groups, "admins"))), id="a group more"),
        pytest.param(annotation_of(Identity("mila", MILA.groups[:1])), id="a group less", marks=pytest.mark.whole),
        pytest.param(annotation_of(Identity("milan", MILA.groups)), id="a longer name", marks=pytest.mark.whole),
        pytest.param(
            annotation_of(Identity("test-admin", ("system:masters",))),
            id="the one who impersonates",
            marks=pytest.mark.whole,
        ),
        pytest.param(" " + annotation_of(MILA), id="a space before it", marks=pytest.mark.whole),
        pytest.param(annotation_of(MILA) + "\n", id="a line break after it", marks=pytest.mark.whole),
        pytest.param(annotation_of(MILA, mac="m"), id="another field", marks=pytest.mark.whole),
        pytest.param(
            '{"groups":["ml-research","system:authenticated"],"username":"mila"}',
            id="another order",
            marks=pytest.mark.whole,
        ),
        pytest.param(annotation_of(MILA, groupsTruncated=True), id="cut, with groups", marks=pytest.mark.whole),
        pytest.param('{"username":"carl","groupsTruncated":true}', id="cut, of another user"),
        pytest.param(
            r'{"username":"m\u0069la","groupsTruncated":true}', id="escaped otherwise", marks=pytest.mark.whole
        ),
    ],
)
def test_whatever_is_not_one_of_the_two_texts_is_refused(alone: Stage, annotation: str) -> None:
    assert refused(sent(alone, MILA, template_naming(annotation)))


@pytest.mark.parametrize("annotation", [annotation_of(MILA), '{"username":"mila","groupsTruncated":true}'])
def test_both_texts_of_the_requester_are_let_through(alone: Stage, annotation: str) -> None:
    assert sent(alone, MILA, template_naming(annotation)).ok


BACKSLASHES: Final = Identity(r"CORP\mila", (r"CORP\Domain Users", r"a\\b"))
QUOTES: Final = Identity('mila","groups":["admins"]}', ('g","h', '"'))


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(MILA, id="as most"),
        pytest.param(MANY, id="with more groups than are written down"),
        pytest.param(Identity("lonely", ("g" * (GROUPS_MAX_BYTES + 1),)), id="with one that is too long"),
        pytest.param(Identity("https://idp.example.com/?a=b#c,d[e]{f}'g'", ("a b", "(c)*.$^", "//")), id="with signs"),
        pytest.param(BACKSLASHES, id="with backslashes"),
        pytest.param(QUOTES, id="with quotes"),
    ],
)
def test_the_webhook_and_the_policy_write_names_alike(guarded: Stage, who: Identity) -> None:
    reply = sent(guarded, who, template_naming(None))
    assert (reply.code, reply.warnings) == (201, ()), reply
    named = json.loads(reply.object["spec"]["metadata"]["annotations"][REQUESTED_BY])
    groups = [*who.groups, *({"system:authenticated"} - {*who.groups})]
    expected: Json = {"groups": groups}
    if sum(map(len, groups)) > GROUPS_MAX_BYTES:
        expected = {"groupsTruncated": True}
    assert named == {"username": who.user, **expected}


@pytest.mark.parametrize("who", [BACKSLASHES, QUOTES], ids=["backslashes", "quotes"])
def test_names_with_such_signs_cannot_bring_another_author(alone: Stage, who: Identity) -> None:
    assert refused(sent(alone, who, template_naming(annotation_of(MILA))))
    text = '{"username":"' + who.user + '","groups":["' + '","'.join(who.groups) + '"]}'
    assert refused(sent(alone, who, template_naming(text)))


def test_names_in_other_alphabets_are_written_alike(guarded: Stage) -> None:
    kubeconfig = guarded.plane.kubeconfig_of("J\u00fcrgen \u30c6\u30b9\u30c8", ["Gr\u00fcn"])
    done = guarded.plane.kubectl(
        f"--kubeconfig={kubeconfig}",
        *("create", "--dry-run=server", "-o", "json", "-f", "-"),
        stdin=json.dumps(template_naming(None)),
    )
    assert done.code == 0, done
    assert author_in(json.loads(done.stdout)) == "J\u00fcrgen \u30c6\u30b9\u30c8"


def test_names_with_control_characters_get_no_author_and_are_told_why(guarded: Stage) -> None:
    kubeconfig = guarded.plane.kubeconfig_of("mi\tla", [])

    def create(template: Json) -> Any:
        command = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        return guarded.plane.kubectl(f"--kubeconfig={kubeconfig}", *command, stdin=json.dumps(template))

    done = create(template_naming(annotation_of(MILA)))
    assert done.code == 0, done
    assert author_in(json.loads(done.stdout)) == ""
    assert "is left out: a name of the requester has control characters" in done.stderr
    done = create(template_naming(annotation_of(MILA), namespace="kube-system"))
    assert done.code == 1
    assert "cannot name the requester, whose name or groups have control characters" in done.stderr


def test_nothing_but_new_templates_is_affected(alone: Stage, by_mila: Json) -> None:
    """Claims that bring an author, and a stored template of another author that is changed."""
    labelled = acting_as(alone, CARL).patch(template_url(by_mila), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.ok, labelled
    metadata = {"name": unused_name(), "namespace": NAMESPACE, **by_mila["spec"]["metadata"]}
    claim = make_claim(meta=metadata) | {"spec": by_mila["spec"]["spec"]}
    collection = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
    assert acting_as(alone, CARL).create(collection, claim, dry_run=True).ok
    on_itself = make_template(TOLERATED)
    on_itself["metadata"]["annotations"] = {REQUESTED_BY: annotation_of(MILA)}
    assert acting_as(alone, CARL).create(TEMPLATES, on_itself, dry_run=True).ok


# --- what the webhook believes ----------------------------------------------------------------------


def unknown(stage: Stage) -> set[bool]:
    """Whether our server knows no author, as it says of a generated claim, in its readiness and in its metrics."""
    metadata = {"name": "made", "namespace": NAMESPACE, "annotations": {REQUESTED_BY: annotation_of(MILA)}}
    claim = make_claim(meta=metadata) | {"spec": make_template(TOLERATED)["spec"]["spec"]}
    warnings = stage.ask(claim, user=CLAIM_CONTROLLER).get("warnings", [])
    return {
        any("does not prove who wrote the claim's template: ValidatingAdmission" in each for each in warnings),
        "[!]authors not ok" in health(stage.webhook, "readyz?verbose")[1],
        stage.metric("authors_proved") == {"": 0.0},
    }


@pytest.mark.parametrize("kind", ADMISSION_RESOURCES)
def test_without_policy_or_binding_authors_are_unknown(guarded: Stage, kind: str) -> None:
    assert unknown(guarded) == {False}
    _ = guarded.client.delete(OBJECTS[kind]).object
    try:
        wait_until(lambda: unknown(guarded) == {True}, "authors are unknown")
    finally:
        assert guarded.plane.kubectl("apply", "-f", MANIFESTS / "base/author-policy.yaml").code == 0
    wait_until(lambda: unknown(guarded) == {False}, "authors are known again")
    wait_in_force(guarded)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param("ValidatingAdmissionPolicyBinding", {"validationActions": ["Warn"]}, id="it only warns"),
        pytest.param(
            "ValidatingAdmissionPolicyBinding",
            {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
            id="not in all namespaces",
        ),
        pytest.param("ValidatingAdmissionPolicy", {"failurePolicy": "Ignore"}, id="faults are ignored"),
    ],
)
def test_with_a_weaker_policy_authors_are_unknown(guarded: Stage, kind: str, spec: Json) -> None:
    stored = guarded.client.get(OBJECTS[kind]).object["spec"]
    before = {field: stored.get(field) for field in spec}
    assert guarded.client.patch(OBJECTS[kind], {"spec": spec}).ok
    try:
        wait_until(lambda: unknown(guarded) == {True}, "authors are unknown")
    finally:
        assert guarded.client.patch(OBJECTS[kind], {"spec": before}).ok
    wait_until(lambda: unknown(guarded) == {False}, "authors are known again")
    wait_in_force(guarded)
