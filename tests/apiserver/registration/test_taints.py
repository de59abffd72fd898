"""Which slices, rules and policies wait for us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.apiserver.registration.asking import (
    BOTH,
    MUTATE,
    NOBODY,
    VALIDATE,
    asked,
    cases,
    created,
    follow,
    in_every_rule_version,
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
    POLICY,
    TAINT,
    Json,
    device,
    make_policy,
    make_rule,
    make_slice,
    unused_name,
    url,
)
from tests.controlplane.plane import ControlPlane

NO_EFFECT: Final = {**TAINT, "effect": "None"}

# --- slices ---------------------------------------------------------------------------------------

SLICES: Final[list[tuple[str, Callable[[str], list[Json | None]], list[str], bool | None]]] = [
    ("a device is tainted", lambda v: [device(v, [TAINT])], BOTH, True),
    ("only the last of 64 devices is tainted", lambda v: [*[device(v)] * 63, device(v, [TAINT])], BOTH, True),
    ("64 devices, four taints each", lambda v: [device(v, [TAINT] * 4)] * 64, BOTH, True),
    ("since 1.35: a taint without effect on pods", lambda v: [device(v, [NO_EFFECT])], BOTH, True),
    ("since 1.35: as many taints as fit", lambda v: [device(v, [TAINT] * 16)] * 64, BOTH, True),
    ("no device", lambda _: [], NOBODY, True),
    ("a device without taints", lambda v: [device(v)], NOBODY, True),
    ("an empty list of taints", lambda v: [device(v, [])], NOBODY, True),
    ("128 devices without taints", lambda v: [device(v)] * 128, NOBODY, True),
    ("a null device", lambda _: [None], NOBODY, None),
    ("a device that is nothing but a name", lambda _: [{}], NOBODY, None),
    ("nulls", lambda _: [{"basic": None, "taints": None}], NOBODY, None),
]
"""Devices, who is asked, and whether they are valid; None if that depends on the version."""


@in_every_version
@table(SLICES)
def test_slices_are_asked_about_if_a_device_is_tainted(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, row: tuple[Any, list[str], bool | None]
) -> None:
    shape, paths, valid = row
    resource_slice = make_slice(version, *shape(version))
    assert created(plane.client, resource_slice).ok or valid is None
    assert asked(webhook, resource_slice) == paths


@in_every_version
def test_slices_are_asked_about_whenever_they_are_written_with_taints(
    plane: ControlPlane, webhook: RecordingWebhook, version: str
) -> None:
    client = plane.client
    name = unused_name()
    clean, tainted, worse = (
        make_slice(version, device(version, taints), name=name)
        for taints in (None, [TAINT], [TAINT, {**TAINT, "value": "very"}])
    )
    follow(
        client,
        webhook,
        clean,
        ("created clean", lambda: created(client, clean, dry_run=False), NOBODY),
        ("tainted", lambda: client.patch(url(clean), {"spec": tainted["spec"]}), BOTH),
        ("labelled", lambda: client.patch(url(clean), {"metadata": {"labels": {"a": "b"}}}), BOTH),
        ("cleaned", lambda: client.patch(url(clean), {"spec": clean["spec"]}), NOBODY),
        ("tainted again", lambda: client.patch(url(clean), {"spec": tainted["spec"]}), BOTH),
        ("held", lambda: client.patch(url(clean), {"metadata": {"finalizers": [FINALIZER]}}), BOTH),
        ("deleted", lambda: client.delete(url(clean)), NOBODY),
        ("labelled while it goes", lambda: client.patch(url(clean), {"metadata": {"labels": {"a": "c"}}}), NOBODY),
        ("put while it goes", lambda: put_as_by_author(client, clean), NOBODY),
        ("tainted while it goes", lambda: client.patch(url(clean), {"spec": worse["spec"]}), BOTH),
        ("let go", lambda: client.patch(url(clean), NO_FINALIZERS), NOBODY),
    )


# --- rules ----------------------------------------------------------------------------------------


@in_every_rule_version
@table(
    [
        ("a selector", {"deviceSelector": {"driver": DRIVER}, "taint": TAINT}),
        ("an empty selector", {"deviceSelector": {}, "taint": TAINT}),
        ("no selector", {"taint": TAINT}),
        ("since 1.35: no effect on pods", {"taint": NO_EFFECT}),
    ]
)
def test_every_new_rule_is_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str, row: list[Json]
) -> None:
    rule = {**make_rule(rule_version), "spec": row[0]}
    assert created(plane.client, rule).ok
    assert asked(webhook, rule) == BOTH


@in_every_rule_version
@cases({"no spec": {}, "a null spec": {"spec": None}, "an empty spec": {"spec": {}}})
def test_malformed_rules_do_not_break_conditions(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str, shape: Json
) -> None:
    rule = make_rule(rule_version)
    del rule["spec"]
    rule |= shape
    assert created(plane.client, rule).reason == "Invalid"
    assert asked(webhook, rule) == MUTATE


@in_every_rule_version
def test_rules_are_asked_about_at_every_change_but_clean_up(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str
) -> None:
    client = plane.client
    rule = make_rule(rule_version, finalizers=[FINALIZER])
    softer = {"spec": {"taint": {**TAINT, "effect": "NoSchedule"}}}
    follow(
        client,
        webhook,
        rule,
        ("created", lambda: created(client, rule, dry_run=False), BOTH),
        ("labelled", lambda: client.patch(url(rule), {"metadata": {"labels": {"a": "b"}}}), BOTH),
        ("softened", lambda: client.patch(url(rule), softer), BOTH),
        ("deleted", lambda: client.delete(url(rule)), NOBODY),
        ("labelled while it goes", lambda: client.patch(url(rule), {"metadata": {"labels": {"a": "c"}}}), NOBODY),
        ("put while it goes", lambda: put_as_by_author(client, rule), NOBODY),
        ("changed while it goes", lambda: client.patch(url(rule), {"spec": {"taint": TAINT}}), BOTH),
        ("let go", lambda: client.patch(url(rule), NO_FINALIZERS), NOBODY),
    )
    assert client.get(url(rule)).code == 404


@pytest.mark.usefixtures("since_1_35")
@in_every_rule_version
def test_nobody_is_asked_about_the_status_of_a_rule(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str
) -> None:
    client, rule = plane.client, make_rule(rule_version)
    condition = {
        "type": "EvictionInProgress",
        "status": "False",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    follow(
        client,
        webhook,
        rule,
        ("created", lambda: created(client, rule, dry_run=False), BOTH),
        ("status set", lambda: client.patch(f"{url(rule)}/status", {"status": {"conditions": [condition]}}), NOBODY),
        ("deleted", lambda: client.delete(url(rule)), NOBODY),
    )


# --- policy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "name", "calls"),
    [
        pytest.param(OWN_NAMESPACE, POLICY, VALIDATE, id="our policy"),
        pytest.param(OWN_NAMESPACE, "kube-root-ca.crt", NOBODY, id="another ConfigMap of ours"),
        pytest.param(OWN_NAMESPACE, f"{POLICY}-2", NOBODY, id="a longer name"),
        pytest.param("default", POLICY, NOBODY, id="a namesake elsewhere"),
        pytest.param("kube-system", POLICY, NOBODY, id="a namesake in a system namespace"),
    ],
)
def test_of_all_config_maps_only_our_policy_is_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, namespace: str, name: str, calls: list[str]
) -> None:
    client, policy = plane.client, make_policy(namespace, name)
    changed = {"data": {"policy.yaml": "mode: off"}}
    follow(
        client,
        webhook,
        policy,
        ("created", lambda: created(client, policy, dry_run=False), calls),
        ("changed", lambda: client.patch(url(policy), changed), calls),
        ("deleted", lambda: client.delete(url(policy)), NOBODY),
    )
