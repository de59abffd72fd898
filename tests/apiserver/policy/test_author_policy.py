"""The API server itself refuses a template in the name of another author, whatever the webhook does (R2)."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.apiserver.policy.pods import (
    NAMESPACE,
    TEMPLATES,
    acting_as,
    author_in,
    make_template,
    template_url,
    unused_name,
)
from tests.apiserver.policy.rows import POLICY, Identity
from tests.apiserver.policy.stage import REQUESTED_BY
from tests.apiserver.registration.samples import MANIFESTS
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from webhook.admission.author import GROUPS_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.policy.pods import Json
    from tests.apiserver.policy.stage import Stage
    from tests.controlplane.client import Reply

pytestmark = pytest.mark.apiserver

MILA: Final = Identity("mila", ("ml-research", "system:authenticated"))
CARL: Final = Identity("carl", ("contractors", "system:authenticated"))
MANY: Final = Identity("mila", tuple(f"group-{number:03}-{'g' * 90}" for number in range(200)))
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
TOLERATED: Final = "firmware.example.com/update:NoSchedule"
DENIED: Final = "ValidatingAdmissionPolicy 'device-taint-webhook-authors'"
WAY_OUT: Final = "remove the annotation, the webhook writes it"


def annotation_of(who: Identity, *, mac: str = "m", **fields: Any) -> str:
    """As the webhook writes it, but for the MAC, which the policy cannot check."""
    text = {"username": who.user, "groups": list(who.groups), **fields, "nonce": "n", "mac": mac}
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
def guarded(installed: Stage) -> Iterator[Stage]:
    """With the policy of the base in force; the webhook is called."""
    installed.use(POLICY)
    file = MANIFESTS / "base/author-policy.yaml"
    done = installed.plane.kubectl("apply", "-f", file)
    assert done.code == 0, done
    try:
        # the webhook is never asked about this namespace
        forged = template_naming(annotation_of(CARL), namespace="kube-system")
        wait_until(lambda: refused(sent(installed, MILA, forged)), "the policy is in force")
        yield installed
    finally:
        installed.plane.kubectl("delete", "-f", file)


@pytest.fixture(scope="module")
def by_mila(guarded: Stage) -> Iterator[Json]:
    """A template of hers, with a real signature."""
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
        pytest.param("", id="nothing"),
        pytest.param("mila", id="no JSON"),
        pytest.param(annotation_of(Identity("mila", ())), id="without the groups"),
        pytest.param(annotation_of(Identity("mila", MILA.groups[::-1])), id="groups in another order"),
        pytest.param(annotation_of(Identity("mila", (*MILA.groups, "admins"))), id="a group more"),
        pytest.param(annotation_of(Identity("mila", MILA.groups[:1])), id="a group less"),
        pytest.param(annotation_of(Identity("mil", MILA.groups)), id="a shorter name"),
        pytest.param(annotation_of(Identity("milan", MILA.groups)), id="a longer name"),
        pytest.param(annotation_of(Identity("test-admin", ("system:masters",))), id="the one who impersonates"),
        pytest.param(" " + annotation_of(MILA), id="a space before it"),
        pytest.param('{"groups":["ml-research","system:authenticated"],"username":"mila"}', id="another order"),
        pytest.param(annotation_of(Identity("mila", ("admins",)), groupsTruncated=True), id="cut, of another group"),
        pytest.param(annotation_of(Identity("mila", ("ml",)), groupsTruncated=True), id="cut within a group"),
        pytest.param(annotation_of(Identity("mila", ("system:authenticated",)), groupsTruncated=True), id="cut before"),
        pytest.param(annotation_of(Identity("carl", ()), groupsTruncated=True), id="cut, of another user"),
        pytest.param('{"groupsTruncated":true,"nonce":"n"}', id="cut, without a name"),
        pytest.param('{"username":"mila","groupsTruncated":true,"mac":"m"}', id="cut, without a nonce"),
        pytest.param(
            '{"username":"mila","x":"groupsTruncated":true,"username":"root","nonce":"n"}', id="a mark in odd places"
        ),
    ],
)
def test_whatever_does_not_begin_with_the_requester_is_refused(alone: Stage, annotation: str) -> None:
    assert refused(sent(alone, MILA, template_naming(annotation)))


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(annotation_of(MILA), id="all groups"),
        pytest.param(annotation_of(Identity("mila", MILA.groups[:1]), groupsTruncated=True), id="some, and it says so"),
        pytest.param('{"username":"mila","groupsTruncated":true,"nonce":"n","mac":"m"}', id="none, and it says so"),
    ],
)
def test_what_begins_with_the_requester_is_let_through(alone: Stage, annotation: str) -> None:
    assert sent(alone, MILA, template_naming(annotation)).ok


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(MILA, id="as most"),
        pytest.param(MANY, id="with more groups than are written down"),
        pytest.param(Identity("lonely", ("g" * (GROUPS_MAX_BYTES + 1),)), id="with one that is too long"),
        pytest.param(Identity("https://idp.example.com/?a=b#c,d[e]{f}'g'", ("a b", "(c)*.$^", "//")), id="with signs"),
    ],
)
def test_the_webhook_and_the_policy_write_names_alike(guarded: Stage, who: Identity) -> None:
    stored = sent(guarded, who, template_naming(None)).object
    assert author_in(stored) == who.user
    named = json.loads(stored["spec"]["metadata"]["annotations"][REQUESTED_BY])
    assert named.get("groups", []) == [*who.groups, "system:authenticated"][: len(named.get("groups", []))]


def test_names_in_other_alphabets_are_written_alike(guarded: Stage) -> None:
    kubeconfig = guarded.plane.kubeconfig_of("J\u00fcrgen \u30c6\u30b9\u30c8", ["Gr\u00fcn"])
    done = guarded.plane.kubectl(
        f"--kubeconfig={kubeconfig}",
        *("create", "--dry-run=server", "-o", "json", "-f", "-"),
        stdin=json.dumps(template_naming(None)),
    )
    assert done.code == 0, done
    assert author_in(json.loads(done.stdout)) == "J\u00fcrgen \u30c6\u30b9\u30c8"


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(Identity('mila","groups":["ml-research","system:authenticated"],"nonce":"', ()), id="user"),
        pytest.param(Identity("mila", ('ml-research","system:authenticated',)), id="group"),
        pytest.param(Identity("mi\\la", ()), id="backslash"),
    ],
)
def test_names_with_quotes_or_backslashes_get_no_author_and_cannot_bring_one(guarded: Stage, who: Identity) -> None:
    reply = sent(guarded, who, template_naming(annotation_of(MILA)))
    assert author_in(reply.object) == ""
    assert any("was removed" in text for text in reply.warnings)
    in_another_place = template_naming(annotation_of(MILA), namespace="kube-system")
    assert sent(guarded, who, in_another_place).code == 403


def test_nothing_but_new_templates_is_affected(alone: Stage, by_mila: Json) -> None:
    """Claims that bring an author, and a stored template of another author that is changed."""
    labelled = acting_as(alone, CARL).patch(template_url(by_mila), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.ok, labelled
    claim = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": unused_name(),
            "namespace": NAMESPACE,
            "annotations": by_mila["spec"]["metadata"]["annotations"],
        },
        "spec": by_mila["spec"]["spec"],
    }
    collection = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
    assert acting_as(alone, CARL).create(collection, claim, dry_run=True).ok
    on_itself = make_template(TOLERATED)
    on_itself["metadata"]["annotations"] = {REQUESTED_BY: annotation_of(MILA)}
    assert acting_as(alone, CARL).create(TEMPLATES, on_itself, dry_run=True).ok
