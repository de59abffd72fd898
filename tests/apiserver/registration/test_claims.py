"""Which claims and templates wait for us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.apiserver.registration.asking import (
    BOTH,
    MUTATE,
    NOBODY,
    asked,
    created,
    follow,
    in_every_version,
    put_as_by_author,
    table,
)
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import (
    DRIVER,
    FINALIZER,
    NO_FINALIZERS,
    OWN_NAMESPACE,
    TOLERATION,
    Json,
    exactly,
    first_available,
    make_claim,
    make_template,
    url,
)
from tests.controlplane import versions
from tests.controlplane.plane import ControlPlane

SOME, NONE = [TOLERATION], None
MANY: Final = SOME * 16

CLAIMS: Final[list[tuple[str, Callable[[str], list[Any]], list[str], str]]] = [
    ("a request tolerates", lambda v: [exactly(v, SOME)], BOTH, ""),
    ("an alternative tolerates", lambda _: [first_available(SOME)], BOTH, ""),
    ("only the last of eight alternatives tolerates", lambda _: [first_available(*[NONE] * 7, SOME)], BOTH, ""),
    ("only the last of 32 requests tolerates", lambda v: [*[exactly(v)] * 31, exactly(v, SOME)], BOTH, ""),
    ("requests of both kinds", lambda v: [exactly(v), first_available(NONE, SOME)], BOTH, ""),
    ("all that fits", lambda v: [exactly(v, MANY)] * 16 + [first_available(*[MANY] * 8)] * 16, BOTH, ""),
    ("no tolerations", lambda v: [exactly(v)], NOBODY, ""),
    ("an empty list of tolerations", lambda v: [exactly(v, [])], NOBODY, ""),
    ("no alternative tolerates", lambda _: [first_available(NONE, [])], NOBODY, ""),
    ("no request at all", lambda _: [], NOBODY, ""),
    ("none in all that fits", lambda v: [exactly(v)] * 16 + [first_available(*[NONE] * 8)] * 16, NOBODY, ""),
    ("a null request", lambda _: [None], NOBODY, "Invalid"),
    ("a request without anything", lambda _: [{}], NOBODY, "Invalid"),
    ("nulls", lambda _: [{"exactly": None, "firstAvailable": None, "tolerations": None}], NOBODY, "Invalid"),
    ("no alternatives", lambda _: [{"firstAvailable": []}], NOBODY, "Invalid"),
    ("a null alternative", lambda _: [{"firstAvailable": [None]}], NOBODY, "Invalid"),
    ("another version's shape", lambda v: [exactly("v1" if v == "v1beta1" else "v1beta1", SOME)], NOBODY, "Invalid"),
    ("both parts, tolerating", lambda v: [{**exactly(v), **first_available(SOME)}], MUTATE, "Invalid"),
]
"""Requests, who is asked, and why the API server refuses after it has evaluated the conditions of what mutates."""


@in_every_version
@table(CLAIMS)
def test_claims_are_asked_about_if_a_request_tolerates(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, row: tuple[Any, list[str], str]
) -> None:
    shape, paths, reason = row
    claim = make_claim(version, *shape(version))
    assert created(plane.client, claim).reason == reason
    assert asked(webhook, claim) == paths


@in_every_version
@table([row for row in CLAIMS if not row[-1]])
def test_every_new_template_is_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, row: tuple[Any, list[str], str]
) -> None:
    template = make_template(version, *row[0](version))
    assert created(plane.client, template).ok
    assert asked(webhook, template) == BOTH


@in_every_version
@pytest.mark.parametrize("make", [make_claim, make_template])
@pytest.mark.parametrize("namespace", ["kube-system", OWN_NAMESPACE])
def test_claims_and_templates_of_own_and_system_namespaces_do_not_wait_for_us(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, make: Callable[..., Json], namespace: str
) -> None:
    obj = make(version, exactly(version, SOME), namespace=namespace)
    assert created(plane.client, obj).ok
    assert asked(webhook, obj) == NOBODY


@in_every_version
def test_claims_are_asked_about_once_in_their_life(
    plane: ControlPlane, webhook: RecordingWebhook, version: str
) -> None:
    client = plane.client
    claim = make_claim(version, exactly(version, SOME), finalizers=[FINALIZER])
    result = {"request": "r0", "driver": DRIVER, "pool": "p", "device": "d", "tolerations": SOME}
    allocated = {"status": {"allocation": {"devices": {"results": [result]}}}}
    follow(
        client,
        webhook,
        claim,
        ("created", lambda: created(client, claim, dry_run=False), BOTH),
        ("labelled", lambda: client.patch(url(claim), {"metadata": {"labels": {"a": "b"}}}), NOBODY),
        ("allocated", lambda: client.patch(f"{url(claim)}/status", allocated), NOBODY),
        ("deallocated", lambda: client.patch(f"{url(claim)}/status", {"status": {"allocation": None}}), NOBODY),
        ("deleted", lambda: client.delete(url(claim)), NOBODY),
        ("labelled while it goes", lambda: client.patch(url(claim), {"metadata": {"labels": {"a": "c"}}}), NOBODY),
        ("let go", lambda: client.patch(url(claim), NO_FINALIZERS), NOBODY),
    )
    assert client.get(url(claim)).code == 404


@in_every_version
def test_templates_are_asked_about_again_only_if_their_spec_would_change(
    plane: ControlPlane, webhook: RecordingWebhook, version: str
) -> None:
    client = plane.client
    template = make_template(version, exactly(version, SOME), finalizers=[FINALIZER])
    annotated = {"spec": {"metadata": {"annotations": {"example.com/added": "by the author"}}}}
    follow(
        client,
        webhook,
        template,
        ("created", lambda: created(client, template, dry_run=False), BOTH),
        ("put again", lambda: put_as_by_author(client, template), NOBODY),
        ("labelled", lambda: client.patch(url(template), {"metadata": {"labels": {"a": "b"}}}), NOBODY),
    )

    assert client.patch(url(template), annotated).reason == "Invalid"  # nobody put back what it had
    assert asked(webhook, template) == MUTATE

    follow(
        client,
        webhook,
        template,
        ("deleted", lambda: client.delete(url(template)), NOBODY),
        ("let go", lambda: client.patch(url(template), NO_FINALIZERS), NOBODY),
    )


@pytest.mark.parametrize("make", [make_claim, make_template])
def test_a_new_object_cannot_pass_for_one_that_is_being_deleted(
    plane: ControlPlane, webhook: RecordingWebhook, make: Callable[..., Json]
) -> None:
    version = versions.api_versions(plane.server_version)[0]
    obj = make(version, exactly(version, SOME), deletionTimestamp="2020-01-01T00:00:00Z")
    assert created(plane.client, obj).ok
    assert asked(webhook, obj) == BOTH
