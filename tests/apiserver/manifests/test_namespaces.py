"""Any namespace (H2): each way to install put into another one by three lines, and nothing left of the usual one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.apiserver.manifests.installing import (
    OWN_NAMESPACE,
    REGISTRATIONS,
    WAYS,
    Json,
    environment_of,
    installation,
    rendered,
    way_of,
)
from tests.controlplane.assets import Assets
from webhook.certificates.settings import SelfManagedSettings
from webhook.config.serve import parse_serve
from webhook.config.workers import parse_evict

ELSEWHERE: Final = "platform-dra"
IN: Final = {"namespace": ELSEWHERE, "transformers": ["transformers/namespace"]}
_NAMES: Final = frozenset(
    {
        *("name", "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/part-of", "commonName"),
        *("image", "resourceNames", "runbook_url", "serviceAccount", "serviceAccountName"),
    }
)
"""Fields that name an object or this program, and never a namespace."""
_OTHER_MEANINGS: Final = re.compile(
    rf"{OWN_NAMESPACE}-[a-z]|/etc/{OWN_NAMESPACE}/|{ELSEWHERE}/{OWN_NAMESPACE}$|^{OWN_NAMESPACE}\.{ELSEWHERE}\b|"
    rf'\b(?:job|deployment)="{OWN_NAMESPACE}"|"uid": "{OWN_NAMESPACE}"|\b(?:job|deployment)=\\"{OWN_NAMESPACE}\\"'
)
"""Texts with longer names, the Service's name before the namespace, and jobs of Prometheus."""


@pytest.fixture(scope="module")
def moved(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Json]]:
    found: dict[str, list[Json]] = {}
    folder = tmp_path_factory.mktemp("moved")

    def each(way: str) -> list[Json]:
        if way not in found:
            found[way] = rendered(assets, way_of(folder / way, way, **IN))
        return found[way]

    return each


_FIRST: Final = {"patch-controller", "production", "self-managed"}
"""Between them they have objects of every kind, with either sort of certificates."""
every_way = pytest.mark.parametrize(
    "way", [pytest.param(each, marks=() if each in _FIRST else pytest.mark.whole) for each in WAYS]
)


def _leaves(value: object, *keys: str) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, *keys, key)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, *keys)
    else:
        yield keys, str(value)


def traces(document: Json) -> list[str]:
    """Texts in which the usual namespace may still be meant."""
    found = []
    for keys, text in _leaves(document):
        named = keys[-1] in _NAMES and document["kind"] != "Namespace"
        if (
            OWN_NAMESPACE in _OTHER_MEANINGS.sub("", text)
            and not (named or keys[-1].startswith("app.kubernetes.io/"))
            and not (keys[-1] == "dnsNames" and text == OWN_NAMESPACE)
        ):
            found.append(f"{document['kind']} {'.'.join(keys)}: {text}")
    return found


@every_way
def test_nothing_is_left_of_the_usual_namespace(moved: Callable[[str], list[Json]], way: str) -> None:
    assert [trace for document in moved(way) for trace in traces(document)] == []


@every_way
def test_the_usual_namespace_leaves_traces_where_it_is_meant(assets: Assets, way: str) -> None:
    """What the other test looks for is found where nothing was moved."""
    found = [trace for document in installation(assets, way) for trace in traces(document)]
    assert [trace for trace in found if ".namespaceSelector." in trace]
    assert [trace for trace in found if "service.namespace" in trace]
    assert [trace for trace in found if trace.startswith("RoleBinding subjects.namespace")]
    assert bool([trace for trace in found if "inject-ca-from" in trace]) == (way in {"cert-manager", "production"})


@every_way
def test_everything_is_in_the_other_namespace_which_comes_along(
    assets: Assets, moved: Callable[[str], list[Json]], way: str
) -> None:
    """And nothing else is changed: objects, their order, and all that names no namespace."""
    documents, usual = moved(way), installation(assets, way)
    (namespace,) = [each["metadata"] for each in documents if each["kind"] == "Namespace"]
    assert namespace["name"] == ELSEWHERE
    for document, before in zip(documents, usual, strict=True):
        assert document["kind"] == before["kind"]
        known = "namespace" in before["metadata"]
        assert document["metadata"].get("namespace") == (ELSEWHERE if known else None)
        texts, texts_before = [text for _, text in _leaves(document)], [text for _, text in _leaves(before)]
        assert len(texts) == len(texts_before)
        changed = {(was, now) for was, now in zip(texts_before, texts, strict=True) if was != now}
        assert all(now.replace(ELSEWHERE, OWN_NAMESPACE) == was for was, now in changed)


@every_way
def test_registrations_leave_out_and_look_into_the_other_namespace(
    moved: Callable[[str], list[Json]], way: str
) -> None:
    for configuration in (each for each in moved(way) if each["kind"] in REGISTRATIONS):
        for entry in configuration["webhooks"]:
            about = entry["name"].partition(".")[0]
            (wanted,) = entry["namespaceSelector"].get("matchExpressions") or [{"values": None}]
            namespaces = {"rules": None, "slices": None, "patches": None, "policy": [ELSEWHERE]}
            assert wanted["values"] == namespaces.get(about, [ELSEWHERE, "kube-system"]), entry["name"]
            assert entry["clientConfig"]["service"]["namespace"] == ELSEWHERE


@every_way
def test_serve_looks_for_the_objects_that_are_there(moved: Callable[[str], list[Json]], way: str) -> None:
    documents = moved(way)
    there = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in documents}
    issued = {name for each in documents if each["kind"] == "Certificate" for name in each["spec"].get("dnsNames", [])}
    called = f"device-taint-webhook.{ELSEWHERE}.svc"
    (settings,) = [parse_serve("x", flags, given) for verb, flags, given in _started(documents) if verb == "serve"]
    assert settings.policy_config_map == (ELSEWHERE, "device-taint-webhook-policy")
    certificates = settings.certificates
    if isinstance(certificates, SelfManagedSettings):
        assert ("Secret", *certificates.secret) in there
        assert called in certificates.names
    else:
        assert called in issued


@every_way
def test_evict_looks_for_the_objects_that_are_there(moved: Callable[[str], list[Json]], way: str) -> None:
    documents = moved(way)
    for settings in [parse_evict("x", flags, given) for verb, flags, given in _started(documents) if verb == "evict"]:
        assert settings.policy_config_map == (ELSEWHERE, "device-taint-webhook-policy")
        assert settings.lease is not None
        (role,) = [
            each
            for each in documents
            if (each["kind"], each["metadata"]["name"]) == ("Role", "device-taint-webhook-evict")
        ]
        granted = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
        assert (role["metadata"]["namespace"], settings.lease.name in granted) == (settings.lease.namespace, True)


def _started(documents: list[Json]) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """(verb, flags, environment) of each workload."""
    for deployment in (each for each in documents if each["kind"] == "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        verb, *flags = container["args"]
        yield verb, flags, environment_of(deployment, container)


def test_one_that_names_the_usual_namespace_stays_as_it_is(assets: Assets, tmp_path: Path) -> None:
    for way in ("cert-manager", "default-tolerations"):
        fields = {**IN, "namespace": OWN_NAMESPACE}
        made = rendered(assets, way_of(tmp_path / way, way, **fields))
        assert made == installation(assets, way)
