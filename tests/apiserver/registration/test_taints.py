"""Which slices, rules and policies wait for us."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apiserver.registration.asking import (
    BOTH,
    MUTATE,
    NOBODY,
    VALIDATE,
    asked,
    cases,
    created,
    in_every_rule_version,
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

pytestmark = pytest.mark.apiserver

# --- slices ---------------------------------------------------------------------------------------

TAINTED: dict[str, Callable[[str], list[Json]]] = {
    "a device is tainted": lambda v: [device(v, [TAINT])],
    "only the last of 64 devices is tainted": lambda v: [*[device(v)] * 63, device(v, [TAINT])],
    "64 devices, four taints each": lambda v: [device(v, [TAINT] * 4)] * 64,
}
TAINTED_SINCE_1_35: dict[str, Callable[[str], list[Json]]] = {
    "a taint without effect on pods": lambda v: [device(v, [{**TAINT, "effect": "None"}])],
    "as many taints as fit": lambda v: [device(v, [TAINT] * 16)] * 64,
}
UNTAINTED: dict[str, Callable[[str], list[Json]]] = {
    "no device": lambda _: [],
    "a device without taints": lambda v: [device(v)],
    "an empty list of taints": lambda v: [device(v, [])],
    "128 devices without taints": lambda v: [device(v)] * 128,
}


@in_every_version
@cases(TAINTED)
def test_slices_are_asked_about_if_a_device_is_tainted(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Json]]
) -> None:
    resource_slice = make_slice(version, *shape(version))
    assert created(plane.client, resource_slice).ok
    assert asked(webhook, resource_slice) == BOTH


@pytest.mark.usefixtures("since_1_35")
@in_every_version
@cases(TAINTED_SINCE_1_35)
def test_slices_as_they_can_be_since_1_35_are_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Json]]
) -> None:
    resource_slice = make_slice(version, *shape(version))
    assert created(plane.client, resource_slice).ok
    assert asked(webhook, resource_slice) == BOTH


@in_every_version
@cases(UNTAINTED)
def test_slices_without_taints_do_not_wait_for_us(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Callable[[str], list[Json]]
) -> None:
    resource_slice = make_slice(version, *shape(version))
    assert created(plane.client, resource_slice).ok
    assert asked(webhook, resource_slice) == NOBODY


@in_every_version
@cases({"a null device": None, "a device that is nothing but a name": {}, "nulls": {"basic": None, "taints": None}})
def test_odd_slices_do_not_break_conditions(
    plane: ControlPlane, webhook: RecordingWebhook, version: str, shape: Json | None
) -> None:
    """Whether they are valid depends on the version."""
    resource_slice = make_slice(version, shape)
    created(plane.client, resource_slice)
    assert asked(webhook, resource_slice) == NOBODY


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
    assert steps(
        client,
        webhook,
        clean,
        ("created clean", lambda: created(client, clean, dry_run=False)),
        ("tainted", lambda: client.patch(url(clean), {"spec": tainted["spec"]})),
        ("labelled", lambda: client.patch(url(clean), {"metadata": {"labels": {"a": "b"}}})),
        ("cleaned", lambda: client.patch(url(clean), {"spec": clean["spec"]})),
        ("tainted again", lambda: client.patch(url(clean), {"spec": tainted["spec"]})),
        ("held", lambda: client.patch(url(clean), {"metadata": {"finalizers": [FINALIZER]}})),
        ("deleted", lambda: client.delete(url(clean))),
        ("labelled while it goes", lambda: client.patch(url(clean), {"metadata": {"labels": {"a": "c"}}})),
        ("put while it goes", lambda: put_as_by_author(client, clean)),
        ("tainted while it goes", lambda: client.patch(url(clean), {"spec": worse["spec"]})),
        ("let go", lambda: client.patch(url(clean), NO_FINALIZERS)),
    ) == {
        "created clean": NOBODY,
        "tainted": BOTH,
        "labelled": BOTH,
        "cleaned": NOBODY,
        "tainted again": BOTH,
        "held": BOTH,
        "deleted": NOBODY,
        "labelled while it goes": NOBODY,
        "put while it goes": NOBODY,
        "tainted while it goes": BOTH,
        "let go": NOBODY,
    }


# --- rules ----------------------------------------------------------------------------------------


@in_every_rule_version
@cases(
    {
        "a selector": {"deviceSelector": {"driver": DRIVER}, "taint": TAINT},
        "an empty selector": {"deviceSelector": {}, "taint": TAINT},
        "no selector": {"taint": TAINT},
    }
)
def test_every_new_rule_is_asked_about(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str, shape: Json
) -> None:
    rule = {**make_rule(rule_version), "spec": shape}
    assert created(plane.client, rule).ok
    assert asked(webhook, rule) == BOTH


@pytest.mark.usefixtures("since_1_35")
@in_every_rule_version
def test_a_new_rule_without_effect_on_pods_is_asked_about_too(
    plane: ControlPlane, webhook: RecordingWebhook, rule_version: str
) -> None:
    rule = {**make_rule(rule_version), "spec": {"taint": {**TAINT, "effect": "None"}}}
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
    assert steps(
        client,
        webhook,
        rule,
        ("created", lambda: created(client, rule, dry_run=False)),
        ("labelled", lambda: client.patch(url(rule), {"metadata": {"labels": {"a": "b"}}})),
        ("softened", lambda: client.patch(url(rule), softer)),
        ("deleted", lambda: client.delete(url(rule))),
        ("labelled while it goes", lambda: client.patch(url(rule), {"metadata": {"labels": {"a": "c"}}})),
        ("put while it goes", lambda: put_as_by_author(client, rule)),
        ("changed while it goes", lambda: client.patch(url(rule), {"spec": {"taint": TAINT}})),
        ("let go", lambda: client.patch(url(rule), NO_FINALIZERS)),
    ) == {
        "created": BOTH,
        "labelled": BOTH,
        "softened": BOTH,
        "deleted": NOBODY,
        "labelled while it goes": NOBODY,
        "put while it goes": NOBODY,
        "changed while it goes": BOTH,
        "let go": NOBODY,
    }
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
    assert steps(
        client,
        webhook,
        rule,
        ("created", lambda: created(client, rule, dry_run=False)),
        ("status set", lambda: client.patch(f"{url(rule)}/status", {"status": {"conditions": [condition]}})),
        ("deleted", lambda: client.delete(url(rule))),
    ) == {"created": BOTH, "status set": NOBODY, "deleted": NOBODY}


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
    assert steps(
        client,
        webhook,
        policy,
        ("created", lambda: created(client, policy, dry_run=False)),
        ("changed", lambda: client.patch(url(policy), changed)),
        ("deleted", lambda: client.delete(url(policy))),
    ) == {"created": calls, "changed": calls, "deleted": NOBODY}
