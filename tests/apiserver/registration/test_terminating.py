"""What is asked about while an object waits for its finalizers: what it does, and never that it may go.

The conditions as cel-python reads them are in tests/unit/admission/test_match_conditions.py.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.apiserver.registration.asking import (
    BOTH,
    NOBODY,
    VALIDATE,
    asked,
    created,
    evaluation_errors,
    follow,
    in_every_rule_version,
    in_every_version,
    wait_cached,
)
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import (
    FINALIZER,
    NO_FINALIZERS,
    OWN_NAMESPACE,
    POLICY,
    TAINT,
    Json,
    device,
    exactly,
    make_claim,
    make_policy,
    make_rule,
    make_slice,
    url,
)
from tests.controlplane.client import APPLY_PATCH, Client, Reply
from tests.controlplane.plane import ControlPlane

EVICT: Final = "devicetaint.io/evict"
CONFIRM: Final = "devicetaint.io/confirm-impact"
RATE: Final = "devicetaint.io/evictions-per-second"
CHANGES: Final[tuple[tuple[Json, Json], ...]] = (
    ({}, {}),
    ({}, {EVICT: "true"}),
    ({EVICT: "true"}, {}),
    ({EVICT: "false"}, {EVICT: "true"}),
    ({"example.com/a": "b"}, {"example.com/a": "b", EVICT: "true"}),
    ({EVICT: "true"}, {EVICT: "true", CONFIRM: "v1.made-up"}),
    ({EVICT: "true", CONFIRM: "v1.a"}, {EVICT: "true", CONFIRM: "v1.b"}),
    ({}, {RATE: "100000"}),
    ({}, {"devicetaint.io/mistyped": "x"}),
    ({}, {"example.com/a": "b"}),
    ({"example.com/a": "b", EVICT: "true"}, {"example.com/a": "c", EVICT: "true"}),
    ({"example.com/a": "b", EVICT: "true"}, {EVICT: "true"}),
    ({"notdevicetaint.io/evict": "x"}, {}),
)
"""Annotations before and after."""
MANY: Final = {f"a{number}": "" for number in range(40_000)}
"""About as many as fit: an API server takes 256 KiB of annotations."""


def _ours(annotations: Json) -> Json:
    return {name: text for name, text in annotations.items() if name.startswith("devicetaint.io/")}


def _going(client: Client, webhook: RecordingWebhook, obj: Json) -> Json:
    """The object, stored and being deleted, before anybody is asked anything else."""
    _ = created(client, obj, dry_run=False).object
    _ = client.delete(url(obj)).object
    stored = client.get(url(obj)).object
    assert "deletionTimestamp" in stored["metadata"]
    wait_cached(client, obj, stored)
    webhook.take()
    return stored


def _gone(client: Client, obj: Json) -> bool:
    return client.patch(url(obj), NO_FINALIZERS).ok and client.get(url(obj)).code == 404


def _applied(client: Client, obj: Json, annotations: Json, *, subresource: str = "", **fields: Any) -> Reply:
    """The annotations, as what one field manager says of the object."""
    name = obj["metadata"]["name"]
    wanted = {**{key: obj[key] for key in ("apiVersion", "kind")}, **fields}
    wanted["metadata"] = {"name": name, "annotations": annotations}
    query = {"fieldManager": "somebody", "force": "true"}
    return client.request("PATCH", url(obj) + subresource, wanted, query=query, content_type=APPLY_PATCH)


@in_every_rule_version
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_r1_a_change_of_our_annotations_is_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str, before: Json, after: Json
) -> None:
    client = plane.client
    rule = make_rule(rule_version, finalizers=[FINALIZER], annotations=before)
    _going(client, webhook, rule)
    removed = dict.fromkeys(before.keys() - after.keys())
    assert client.patch(url(rule), {"metadata": {"annotations": {**after, **removed}}}).ok
    assert asked(webhook, rule) == (NOBODY if _ours(before) == _ours(after) else BOTH)
    assert client.patch(url(rule), {"metadata": {"labels": {"a": "b"}}}).ok
    assert _gone(client, rule)
    assert asked(webhook, rule) == NOBODY


@in_every_rule_version
def test_r1_server_side_apply_is_asked_about_when_it_sets_and_when_it_drops_our_annotations(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str
) -> None:
    client, rule = plane.client, make_rule(rule_version, finalizers=[FINALIZER])
    _going(client, webhook, rule)
    follow(
        client,
        webhook,
        rule,
        ("of others", lambda: _applied(client, rule, {"example.com/a": "b"}), NOBODY),
        ("set", lambda: _applied(client, rule, {"example.com/a": "b", EVICT: "true"}), BOTH),
        ("again", lambda: _applied(client, rule, {"example.com/a": "b", EVICT: "true"}), NOBODY),
        ("dropped", lambda: _applied(client, rule, {"example.com/a": "b"}), BOTH),
        ("let go", lambda: client.patch(url(rule), NO_FINALIZERS), NOBODY),
    )


@pytest.mark.whole
@in_every_rule_version
def test_r1_no_number_of_annotations_hides_ours_or_keeps_a_rule_from_going(
    plane: ControlPlane, webhook: RecordingWebhook, known_errors: list[float], rule_version: str
) -> None:
    """What a condition may cost is limited; a write that cannot be judged is refused, as the entry says Fail.

    Names are looked at in an order that differs from one write to the next, so the cost does as well.
    """
    client = plane.client
    rule = make_rule(rule_version, finalizers=[FINALIZER], annotations=MANY)
    _going(client, webhook, rule)
    reply = client.patch(url(rule), {"metadata": {"annotations": {EVICT: "true"}}})
    assert "/validate" in asked(webhook, rule) or not reply.ok, reply
    known_errors[0] = evaluation_errors(plane)
    assert client.patch(url(rule), {"metadata": {"labels": {"a": "b"}}}).ok
    assert _gone(client, rule)


@in_every_version
def test_a_slice_that_waits_for_its_finalizers_is_asked_about_as_a_rule_is(
    plane: ControlPlane, webhook: RecordingWebhook, version: str
) -> None:
    client = plane.client
    resource_slice = make_slice(version, device(version, [TAINT]), finalizers=[FINALIZER])
    _going(client, webhook, resource_slice)
    there = url(resource_slice)
    follow(
        client,
        webhook,
        resource_slice,
        (
            "of others",
            lambda: client.patch(there, {"metadata": {"annotations": {"example.com/a": "b"}}}),
            NOBODY,
        ),
        ("ours", lambda: client.patch(there, {"metadata": {"annotations": {EVICT: "true"}}}), BOTH),
        ("let go", lambda: client.patch(there, NO_FINALIZERS), NOBODY),
    )


def test_the_policy_is_asked_about_until_it_is_gone(plane: ControlPlane, webhook: RecordingWebhook) -> None:
    """A ConfigMap that waits for a finalizer is in use."""
    client, policy = plane.client, make_policy(OWN_NAMESPACE, POLICY)
    policy["metadata"]["finalizers"] = [FINALIZER]
    _going(client, webhook, policy)
    follow(
        client,
        webhook,
        policy,
        ("labelled", lambda: client.patch(url(policy), {"metadata": {"labels": {"a": "b"}}}), NOBODY),
        ("changed", lambda: client.patch(url(policy), {"data": {"policy.yaml": "mode: off"}}), VALIDATE),
        ("a candidate", lambda: client.patch(url(policy), {"data": {"candidate.yaml": "mode: off"}}), VALIDATE),
        ("binary", lambda: client.patch(url(policy), {"binaryData": {"policy.yml": "eA=="}}), VALIDATE),
        ("emptied", lambda: client.patch(url(policy), {"data": None}), VALIDATE),
        ("let go", lambda: client.patch(url(policy), NO_FINALIZERS), NOBODY),
    )


# --- past the registrations -----------------------------------------------------------------------


@pytest.mark.usefixtures("since_1_35")
@in_every_rule_version
@pytest.mark.parametrize("going", [False, True], ids=["living", "being deleted"])
def test_r1_metadata_and_spec_of_a_rule_cannot_be_changed_through_its_status(
    plane: ControlPlane,
    webhook: RecordingWebhook,
    rule_version: str,
    going: bool,  # noqa: FBT001 -- a table's
) -> None:
    """The status subresource is not registered; the API server keeps everything but the status as it was."""
    client = plane.client
    rule = make_rule(rule_version, finalizers=[FINALIZER], annotations={"example.com/a": "b"})
    _ = created(client, rule, dry_run=False).object
    if going:
        assert client.delete(url(rule)).ok
    _past_the_status(client, rule, {"taint": {"key": "example.com/other", "effect": "NoExecute"}})
    webhook.take()
    assert client.delete(url(rule)).ok
    assert _gone(client, rule)


@in_every_version
def test_metadata_and_spec_of_a_claim_cannot_be_changed_through_its_status(
    plane: ControlPlane, webhook: RecordingWebhook, version: str
) -> None:
    client = plane.client
    claim = make_claim(version, exactly(version), finalizers=[FINALIZER], annotations={"example.com/a": "b"})
    _ = created(client, claim, dry_run=False).object
    toleration = {"key": "example.com/x", "operator": "Exists"}
    requests = make_claim(version, exactly(version, [toleration]))["spec"]["devices"]["requests"]
    _past_the_status(client, claim, {"devices": {"requests": requests}})
    webhook.take()
    assert client.delete(url(claim)).ok
    assert _gone(client, claim)


def _past_the_status(client: Client, obj: Json, spec: Json) -> None:
    """Tries to change annotations, labels, finalizers and the spec by every way of writing a status."""
    before = client.get(url(obj)).object
    metadata = {
        "annotations": {EVICT: "true", CONFIRM: "v1.made-up", "example.com/a": None},
        "labels": {"a": "b"},
        "finalizers": None,
    }
    put = copy.deepcopy(before)
    put["metadata"] = {**put["metadata"], "annotations": {EVICT: "true"}, "labels": {"a": "b"}, "finalizers": []}
    del put["metadata"]["managedFields"]
    put["spec"] = {**put["spec"], **spec}
    written = [
        client.patch(f"{url(obj)}/status", {"metadata": metadata, "spec": spec}),
        client.replace(f"{url(obj)}/status", put),
        _applied(client, obj, {EVICT: "true"}, subresource="/status", spec={**before["spec"], **spec}),
    ]
    assert [reply.code for reply in written] == [200, 200, 200], written
    after = client.get(url(obj)).object
    kept = ("annotations", "labels", "finalizers", "ownerReferences", "deletionTimestamp", "generation")
    assert {name: after["metadata"].get(name) for name in kept} == {name: before["metadata"].get(name) for name in kept}
    assert after["spec"] == before["spec"]
