"""Each way to install in an empty cluster: it applies, applies again without a trace, and is stored as written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.apiserver.manifests.installing import (
    MANIFESTS,
    WAYS,
    Json,
    install_foreign_kinds,
    overlay_of,
    remove,
    remove_foreign_kinds,
    rendered,
    url,
    way_of,
)
from tests.apiserver.registration.samples import make_rule
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

HOW: Final = {
    "client-side": (),
    "server-side": ("--server-side", "--field-manager=gitops"),
}
EVERYTHING: Final = "all components elsewhere"
_CERTIFICATES: Final = "../certs/self-managed"
_COMPONENTS: Final = (
    *("high-availability", "evict-delegated", "evict-without-delete", "default-tolerations", "patches"),
    *("patch-controller", "slice-attributes", "monitoring", "client-certificates", "host-network", "watch-pods"),
    *("reports",),
)
_LATER: Final = [pytest.param(each, marks=pytest.mark.whole) for each in WAYS]
_SET_BY_SERVER: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# What no manifest can know: addresses and families are the cluster's.
_SERVICE_ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies")


@pytest.fixture(scope="module")
def empty(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane that knows the kinds of cert-manager and the Prometheus operator."""
    install_foreign_kinds(plane)
    yield plane
    remove_foreign_kinds(plane)


def _create_rule(plane: ControlPlane) -> bool:
    version = versions.rule_versions(plane.server_version)[0]
    return plane.client.create(
        path(f"{versions.GROUP}/{version}", "devicetaintrules"), make_rule(version), dry_run=True
    ).ok


def _apply(plane: ControlPlane, folder: str, *arguments: str) -> None:
    """Unknown and doubled fields are errors; so are remarks."""
    done = plane.kubectl("apply", "-k", MANIFESTS / folder, "--validate=strict", *arguments)
    assert (done.code, done.stderr) == (0, ""), done


def _is_settled(stored: Json) -> bool:
    """Whether it has the conditions that an API server adds a moment later."""
    wanted = {"CustomResourceDefinition": ("Established", "True"), "FlowSchema": ("Dangling", "False")}
    conditions = [(each["type"], each["status"]) for each in stored.get("status", {}).get("conditions") or ()]
    return stored["kind"] not in wanted or wanted[stored["kind"]] in conditions


def _as_written(stored: Json) -> Json:
    """Without what the server sets on every object, and what others add as time goes by."""
    metadata = {key: value for key, value in stored["metadata"].items() if key not in _SET_BY_SERVER}
    annotations = {key: text for key, text in metadata.pop("annotations", {}).items() if key != _LAST_APPLIED}
    written = {**stored, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}
    written.pop("status", None)
    if stored["kind"] == "Namespace":
        del written["spec"]  # finalizers
        written["metadata"]["labels"] = {
            key: text for key, text in metadata["labels"].items() if key != "kubernetes.io/metadata.name"
        }
    if stored["kind"] == "Service" and stored["spec"]["clusterIP"] != "None":
        written["spec"] = {key: value for key, value in stored["spec"].items() if key not in _SERVICE_ADDRESSES}
    elif stored["kind"] == "Service":
        written["spec"] = {key: value for key, value in stored["spec"].items() if key != "ipFamilies"}
    return written


@pytest.fixture
def folder(way: str, tmp_path: Path) -> str:
    """Of a way to install; EVERYTHING is all components at once, in a namespace that is not the usual one."""
    if way != EVERYTHING:
        return way_of(tmp_path / way, way)
    components = [_CERTIFICATES, *(f"components/{name}" for name in _COMPONENTS)]
    fields: Json = {"namespace": "platform-dra", "transformers": ["transformers/namespace"]}
    return overlay_of(tmp_path / "everything", components=components, **fields)


@pytest.mark.parametrize("how", [pytest.param("client-side", marks=pytest.mark.whole), "server-side"])
@pytest.mark.parametrize("way", [EVERYTHING, *_LATER])
def test_overlay_applies_twice_and_is_stored_to_the_last_field(empty: ControlPlane, folder: str, how: str) -> None:
    """No field is left to the server's defaults: GitOps tools compare, and would find a difference for ever."""
    documents = rendered(empty.assets, folder)

    def stored() -> list[Json]:
        return [empty.client.get(url(document)).object for document in documents]

    with contextlib.ExitStack() as stack:
        stack.callback(wait_until, lambda: _create_rule(empty), "rules can be created again")
        stack.callback(remove, empty, documents)
        _apply(empty, folder, *HOW[how])
        wait_until(lambda: all(map(_is_settled, stored())), "the server has said all that it says by itself")
        first = stored()
        assert [_as_written(document) for document in first] == documents
        _apply(empty, folder, *HOW[how])
        assert stored() == first
        done = empty.kubectl("diff", "-k", MANIFESTS / folder, *HOW[how])
        assert (done.code, done.stdout) == (0, ""), done
