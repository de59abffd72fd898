"""Which claims and templates wait for us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.registration.asking import (
    BOTH,
    MUTATE,
    NOBODY,
    asked,
    cases,
    created,
    in_every_version,
    put_as_by_author,
    steps,
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

pytestmark = pytest.mark.apiserver

SOME, NONE = [TOLERATION], None

TOLERATING: dict[str, Callable[[str], list[Json]]] = {
    "a request tolerates": lambda v: [exactly(v, SOME)],
    "an alternative tolerates": lambda _: [first_available(SOME)],
    "only the last of eight alternatives tolerates": lambda _: [first_available(*[NONE] * 7, SOME)],
    "only the last of 32 requests tolerates": lambda v: [*[exactly(v)] * 31, exactly(v, SOME)],
    "requests of both kinds, an alternative tolerates": lambda v: [exactly(v), first_available(NONE, SOME)],
    "everything tolerates, as much as fits": lambda v: (
        [exactly(v, SOME * 16)] * 16 + [first_available(*[SOME * 16] * 8)] * 16
    ),
}
INTOLERANT: dict[str, Callable[[str], list[Json]]] = {
    "no tolerations": lambda v: [exactly(v)],
    "an empty list of tolerations": lambda v: [exactly(v, [])],
    "no alternative tolerates": lambda _: [first_available(NONE, [])],
    "no request at all": lambda _: [],
    "as much as fits, without tolerations": lambda v: [exactly(v)] * 16 + [first_available(*[NONE] * 8)] * 16,
}
# What the API server refuses after it has evaluated the conditions of what mutates.
MALFORMED: dict[str, Callable[[str], list[Any]]] = {
    "a null request": lambda _: [None],
    "a request without anything": lambda _: [{}],
    "null instead of a request's parts": lambda _: [{"exactly": None, "firstAvailable": None, "tolerations": None}],
    "no alternatives": lambda _: [{"firstAvailable": []}],
    "a null alternative": lambda _: [{"firstAvailable": [None]}],
    "the other version's shape": lambda v: [exactly("v1" if v == "v1beta1" else "v1beta1", SOME)],
}


@in_every_version
@cases(TOLERATING)
def test_claims_are_asked_about_if_a_request_tolerates(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Json]]
) -> None:
    claim = make_claim(version, *shape(version))
    assert created(plane.client, claim).ok
    assert asked(webhook, claim) == BOTH


@in_every_version
@cases(INTOLERANT)
def test_claims_without_tolerations_do_not_wait_for_us(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Json]]
) -> None:
    claim = make_claim(version, *shape(version))
    assert created(plane.client, claim).ok
    assert asked(webhook, claim) == NOBODY


@in_every_version
@cases(MALFORMED)
def test_malformed_claims_do_not_break_conditions(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Any]]
) -> None:
    claim = make_claim(version, *shape(version))
    assert created(plane.client, claim).reason == "Invalid"
    assert asked(webhook, claim) == NOBODY


def test_malformed_claims_that_tolerate_are_completed_before_they_are_refused(
    plane: ControlPlane, webhook: RecordingWebhook
) -> None:
    version = versions.api_versions(plane.server_version)[0]
    claim = make_claim(version, {**exactly(version), **first_available(SOME)})
    assert created(plane.client, claim).reason == "Invalid"
    assert asked(webhook, claim) == MUTATE


@in_every_version
@cases(TOLERATING | INTOLERANT)
def test_every_new_template_is_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Json]]
) -> None:
    template = make_template(version, *shape(version))
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
    assert steps(
        client,
        webhook,
        claim,
        ("created", lambda: created(client, claim, dry_run=False)),
        ("labelled", lambda: client.patch(url(claim), {"metadata": {"labels": {"a": "b"}}})),
        ("allocated", lambda: client.patch(f"{url(claim)}/status", allocated)),
        ("deallocated", lambda: client.patch(f"{url(claim)}/status", {"status": {"allocation": None}})),
        ("deleted", lambda: client.delete(url(claim))),
        ("labelled while it goes", lambda: client.patch(url(claim), {"metadata": {"labels": {"a": "c"}}})),
        ("let go", lambda: client.patch(url(claim), NO_FINALIZERS)),
    ) == {
        "created": BOTH,
        "labelled": NOBODY,
        "allocated": NOBODY,
        "deallocated": NOBODY,
        "deleted": NOBODY,
        "labelled while it goes": NOBODY,
        "let go": NOBODY,
    }
    assert client.get(url(claim)).code == 404


@in_every_version
def test_templates_are_asked_about_again_only_if_their_spec_would_change(
    plane: ControlPlane, webhook: RecordingWebhook, version: str
) -> None:
    client = plane.client
    template = make_template(version, exactly(version, SOME), finalizers=[FINALIZER])
    annotated = {"spec": {"metadata": {"annotations": {"example.com/added": "by the author"}}}}
    assert steps(
        client,
        webhook,
        template,
        ("created", lambda: created(client, template, dry_run=False)),
        ("put again", lambda: put_as_by_author(client, template)),
        ("labelled", lambda: client.patch(url(template), {"metadata": {"labels": {"a": "b"}}})),
    ) == {"created": BOTH, "put again": NOBODY, "labelled": NOBODY}

    assert client.patch(url(template), annotated).reason == "Invalid"  # nobody put back what it had
    assert asked(webhook, template) == MUTATE

    assert steps(
        client,
        webhook,
        template,
        ("deleted", lambda: client.delete(url(template))),
        ("let go", lambda: client.patch(url(template), NO_FINALIZERS)),
    ) == {"deleted": NOBODY, "let go": NOBODY}


@pytest.mark.parametrize("make", [make_claim, make_template])
def test_a_new_object_cannot_pass_for_one_that_is_being_deleted(
    plane: ControlPlane, webhook: RecordingWebhook, make: Callable[..., Json]
) -> None:
    version = versions.api_versions(plane.server_version)[0]
    obj = make(version, exactly(version, SOME), deletionTimestamp="2020-01-01T00:00:00Z")
    assert created(plane.client, obj).ok
    assert asked(webhook, obj) == BOTH
