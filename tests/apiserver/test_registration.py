"""The webhook configurations as files, and as the API server stores them.

Whom they make the API server ask is the subject of the folder registration.
"""

from __future__ import annotations

import base64
import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.manifests.installing import remove, url
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import (
    MANIFESTS,
    OWN_NAMESPACE,
    TOLERATION,
    Json,
    exactly,
    make_claim,
    make_rule,
)
from tests.controlplane import versions
from tests.controlplane.client import JSON_PATCH, path
from tests.controlplane.pki import Authority
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import FILES, configurations, registered
from webhook.api.meta import GroupVersionResource
from webhook.validation.kinds import KINDS

BASE = MANIFESTS / "base"
DOCUMENTS = [
    document
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    for document in yaml.safe_load_all((BASE / name).read_text())
]
CONFIGURATIONS = configurations(MANIFESTS)
ENTRIES = [entry for configuration in CONFIGURATIONS for entry in configuration["webhooks"]]
RULES = [(entry, rule) for entry in ENTRIES for rule in entry["rules"]]

every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
every_rule = pytest.mark.parametrize(("entry", "rule"), RULES, ids=[entry["name"] for entry, _ in RULES])
every_configuration = pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c["kind"])


# --- the files ------------------------------------------------------------------------------------


def test_entries_are_separate_so_that_each_has_its_own_failure_policy() -> None:
    assert {entry["name"]: entry["failurePolicy"] for entry in ENTRIES} == {
        "rules.validate.devicetaint.io": "Fail",
        "claims.validate.devicetaint.io": "Ignore",
        "templates.validate.devicetaint.io": "Ignore",
        "slices.validate.devicetaint.io": "Ignore",
        "policy.validate.devicetaint.io": "Ignore",
        "rules.mutate.devicetaint.io": "Ignore",
        "claims.mutate.devicetaint.io": "Ignore",
        "templates.mutate.devicetaint.io": "Ignore",
        "slices.mutate.devicetaint.io": "Ignore",
    }


def test_what_each_entry_is_asked_about() -> None:
    """Never DELETE, and claims and what validates templates only while they are new."""
    always, once = ["CREATE", "UPDATE"], ["CREATE"]
    assert {entry["name"]: (rule["resources"], rule["operations"], rule["scope"]) for entry, rule in RULES} == {
        "rules.validate.devicetaint.io": (["devicetaintrules"], always, "Cluster"),
        "claims.validate.devicetaint.io": (["resourceclaims"], once, "Namespaced"),
        "templates.validate.devicetaint.io": (["resourceclaimtemplates"], once, "Namespaced"),
        "slices.validate.devicetaint.io": (["resourceslices"], always, "Cluster"),
        "policy.validate.devicetaint.io": (["configmaps"], always, "Namespaced"),
        "rules.mutate.devicetaint.io": (["devicetaintrules"], always, "Cluster"),
        "claims.mutate.devicetaint.io": (["resourceclaims"], once, "Namespaced"),
        "templates.mutate.devicetaint.io": (["resourceclaimtemplates"], always, "Namespaced"),
        "slices.mutate.devicetaint.io": (["resourceslices"], always, "Cluster"),
    }


@every_rule
def test_no_wildcard_no_subresource_and_no_core_group_but_for_the_policy(entry: Json, rule: Json) -> None:
    values = [value for key in ("apiGroups", "apiVersions", "resources", "operations") for value in rule[key]]
    assert not [value for value in values if "*" in value or "/" in value]
    if entry["name"] == "policy.validate.devicetaint.io":
        assert (rule["apiGroups"], rule["resources"]) == ([""], ["configmaps"])
    else:
        assert rule["apiGroups"] == [versions.GROUP]


@every_rule
def test_no_version_is_registered_that_the_webhook_cannot_read(entry: Json, rule: Json) -> None:
    """It would be let through with a warning, where matchPolicy Equivalent has it converted to one that is read."""
    if entry["name"] != "policy.validate.devicetaint.io":
        listed = {
            GroupVersionResource(group, version, resource)
            for group in rule["apiGroups"]
            for version in rule["apiVersions"]
            for resource in rule["resources"]
        }
        assert listed <= KINDS.keys()


@every_entry
def test_only_claims_templates_and_the_policy_depend_on_the_namespace(entry: Json) -> None:
    """By name: labels can be set by those who are to be bound."""
    left_out = {"operator": "NotIn", "values": [OWN_NAMESPACE, "kube-system"]}
    only_ours = {"operator": "In", "values": [OWN_NAMESPACE]}
    expected = {"claims": left_out, "templates": left_out, "policy": only_ours}.get(entry["name"].partition(".")[0])
    expressions = [{"key": "kubernetes.io/metadata.name", **expected}] if expected else None
    assert entry["namespaceSelector"] == ({"matchExpressions": expressions} if expressions else {})


@every_entry
def test_every_entry_lets_clean_up_pass(entry: Json) -> None:
    names = {"not-being-deleted", "not-only-clean-up", "not-only-clean-up-of-data"}
    assert entry["matchConditions"][0]["name"] in names


def test_conditions_of_the_same_name_are_the_same() -> None:
    named: dict[str, set[str]] = {}
    for entry in ENTRIES:
        for condition in entry["matchConditions"]:
            named.setdefault(condition["name"], set()).add(condition["expression"])
    assert {name: len(expressions) for name, expressions in named.items()} == dict.fromkeys(named, 1)


@every_entry
def test_waiting_is_bounded_and_dry_runs_are_free(entry: Json) -> None:
    assert 3 <= entry["timeoutSeconds"] <= 5
    assert (entry["sideEffects"], entry["matchPolicy"], entry["admissionReviewVersions"]) == (
        "None",
        "Equivalent",
        ["v1"],
    )
    mutates = ".mutate." in entry["name"]
    assert entry["clientConfig"]["service"]["path"] == ("/mutate" if mutates else "/validate")
    assert entry.get("reinvocationPolicy") == ("IfNeeded" if mutates else None)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["kind"])
def test_labels_are_the_recommended_ones(document: Json) -> None:
    project = tomllib.loads((MANIFESTS.parent / "pyproject.toml").read_text())["project"]
    recommended = {
        "app.kubernetes.io/name": project["name"],
        "app.kubernetes.io/instance": project["name"],
        "app.kubernetes.io/component": "admission",
        "app.kubernetes.io/part-of": project["name"],
        "app.kubernetes.io/managed-by": "kustomize",
    }
    labels = document["metadata"]["labels"]
    assert {key: text for key, text in labels.items() if key.startswith("app.kubernetes.io/")} == recommended


@every_configuration
def test_aks_keeps_its_hands_off(configuration: Json) -> None:
    assert configuration["metadata"]["annotations"] == {"admissions.enforcer/disabled": "true"}


def test_kustomize_leaves_nothing_out() -> None:
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    assert {f"base/{name}" for name in kustomization["resources"]} >= set(FILES)


# --- as stored ------------------------------------------------------------------------------------

_SET_BY_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
def cleared(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane without anything of the base, from which it goes again; and that has noticed so.

    Others make the namespace by other means, which kubectl remarks upon.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(wait_until, lambda: _create_rule(plane), "rules can be created again")
        remove(plane, DOCUMENTS)
        stack.callback(remove, plane, DOCUMENTS)
        yield plane


def _create_rule(plane: ControlPlane) -> bool:
    version = versions.rule_versions(plane.server_version)[0]
    rules = path(f"{versions.GROUP}/{version}", "devicetaintrules")
    return plane.client.create(rules, make_rule(version), dry_run=True).ok


def _stored(plane: ControlPlane) -> list[Json]:
    return [plane.client.get(url(configuration)).object for configuration in CONFIGURATIONS]


def _without_what_the_server_sets(configuration: Json) -> Json:
    metadata = {k: v for k, v in configuration["metadata"].items() if k not in _SET_BY_SERVER}
    metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != _LAST_APPLIED}
    return {**configuration, "metadata": metadata}


def _apply(plane: ControlPlane, *arguments: str) -> str:
    done = plane.kubectl("apply", "-k", BASE, *arguments)
    assert (done.code, done.stderr) == (0, ""), done
    return done.stdout


CLIENT_SIDE: tuple[str, ...] = ()
SERVER_SIDE = ("--server-side", "--field-manager=gitops")
either_way = pytest.mark.parametrize(
    "how",
    [pytest.param(CLIENT_SIDE, marks=pytest.mark.whole), SERVER_SIDE],
    ids=["client-side", "server-side"],
)


@pytest.mark.apiserver
@either_way
@pytest.mark.whole
def test_applying_twice_changes_nothing(cleared: ControlPlane, how: tuple[str, ...]) -> None:
    _apply(cleared, *how)
    first = _stored(cleared)
    _apply(cleared, *how)
    assert _stored(cleared) == first


@pytest.mark.apiserver
@either_way
@pytest.mark.whole
def test_the_stored_configurations_are_the_files_to_the_last_field(cleared: ControlPlane, how: tuple[str, ...]) -> None:
    _apply(cleared, *how)
    assert [_without_what_the_server_sets(c) for c in _stored(cleared)] == CONFIGURATIONS
    done = cleared.kubectl("diff", "-k", BASE, *how)
    assert (done.code, done.stdout) == (0, ""), done


@pytest.mark.apiserver
@either_way
def test_an_injected_ca_bundle_survives_the_next_apply(cleared: ControlPlane, how: tuple[str, ...]) -> None:
    _apply(cleared, *how)
    bundle = base64.b64encode(Authority().pem).decode()
    for configuration in CONFIGURATIONS:
        patch: list[dict[str, Any]] = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": bundle}
            for i, _ in enumerate(configuration["webhooks"])
        ]
        assert cleared.client.patch(url(configuration), patch, JSON_PATCH).ok
    injected = _stored(cleared)
    _apply(cleared, *how)
    assert _stored(cleared) == injected


@pytest.mark.apiserver
def test_every_served_version_is_registered(plane: ControlPlane) -> None:
    """Else it is converted first, and field paths in messages are not the author's."""
    served = {
        (resource["name"], version)
        for version in versions.api_versions(plane.server_version)
        for resource in plane.client.get(f"/apis/{versions.GROUP}/{version}").object["resources"]
    }
    for entry, rule in RULES:
        if rule["apiGroups"] == [versions.GROUP]:
            (resource,) = rule["resources"]
            assert {v for r, v in served if r == resource} <= set(rule["apiVersions"]), entry["name"]


@pytest.mark.apiserver
def test_a_version_that_is_not_registered_is_converted_to_one_that_is(plane: ControlPlane, tmp_path: Path) -> None:
    """As claims and slices of v1alpha3 are in 1.33: nobody gets past the webhook by choosing a version."""
    *kept, dropped = versions.api_versions(plane.server_version)[:3]
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = (MANIFESTS / name).read_text()
        (tmp_path / name).write_text(text.replace(f", {dropped}]", "]"))
    claim = make_claim(dropped, exactly(dropped, [TOLERATION]))
    with (
        RecordingWebhook(tmp_path) as recording,
        registered(plane, tmp_path, recording.base_url, recording.ca_pem),
    ):
        recording.take()
        claims = path(claim["apiVersion"], "resourceclaims", namespace="default")
        assert plane.client.create(claims, claim, dry_run=True).ok
        calls = recording.take()
    assert [(call.path, call.requested_version) for call in calls] == [("/mutate", dropped), ("/validate", dropped)]
    assert {call.version for call in calls} <= set(kept)
