"""Every way to install as kubectl renders it, and what it takes to install it where its other kinds are missing."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.assets import Assets
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.config.serve import ServeSettings

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[3]
MANIFESTS: Final = ROOT / "manifests"
OWN_NAMESPACE: Final = "device-taint-webhook"
OVERLAYS: Final = tuple(sorted(file.parent.name for file in MANIFESTS.glob("overlays/*/kustomization.yaml")))
_SELF_MANAGED: Final = "../certs/self-managed"
COMBINATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "client-certificates": (_SELF_MANAGED, "components/client-certificates"),
    "default-tolerations": (_SELF_MANAGED, "components/default-tolerations"),
    "evict-delegated": (_SELF_MANAGED, "components/evict-delegated"),
    "evict-observe": (_SELF_MANAGED, "components/evict"),
    "evict-replacement": (_SELF_MANAGED, "components/evict-replacement"),
    "high-availability": (_SELF_MANAGED, "components/high-availability"),
    "monitoring": (_SELF_MANAGED, "components/monitoring"),
    "patch-controller": (_SELF_MANAGED, "components/patches", "components/patch-controller"),
    "patches": (_SELF_MANAGED, "components/patches"),
}
"""Installations without an overlay: what a kustomization of one's own adds to the base."""
WAYS: Final = tuple(sorted((*OVERLAYS, *COMBINATIONS)))
"""All of them, by name. What is said of each way to install is shown for each of these."""
REGISTRATIONS: Final = frozenset({"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"})
FOREIGN_KINDS: Final = {
    "Certificate": "cert-manager.io",
    "Issuer": "cert-manager.io",
    "PrometheusRule": "monitoring.coreos.com",
    "ServiceMonitor": "monitoring.coreos.com",
}
"""Kinds that others bring, by their group; all in v1."""


def rendered(assets: Assets, folder: str) -> list[Json]:
    """The documents of a folder below manifests, as kustomize puts them together and in its order."""
    command = [str(assets.program("kubectl")), "kustomize", str(MANIFESTS / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return list(yaml.safe_load_all(done.stdout))


def overlay_of(folder: Path, *, base: str = "base", components: Iterable[str] = (), **fields: Any) -> str:
    """Writes a kustomization of one's own: paths are below manifests, `fields` are added. Gives it for `rendered`."""
    folder.mkdir()
    manifests = Path("/".join([".."] * len(folder.parts[1:]))) / MANIFESTS.relative_to("/")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(manifests / base)],
        "components": [str(manifests / each) for each in components],
        **fields,
    }
    if "transformers" in fields:
        kustomization["transformers"] = [str(manifests / each) for each in fields["transformers"]]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return str(folder)


def way_of(folder: Path, way: str, *more: str, **fields: Any) -> str:
    """A way to install with components more, for `rendered`: the overlay itself, or a kustomization in a new folder."""
    if way not in OVERLAYS:
        return overlay_of(folder, components=[*COMBINATIONS[way], *more], **fields)
    if not (more or fields):
        return f"overlays/{way}"
    return overlay_of(folder, base=f"overlays/{way}", components=more, **fields)


def installation(assets: Assets, way: str, *more: str) -> list[Json]:
    """The documents of a way to install, with components more."""
    with tempfile.TemporaryDirectory(prefix="way-") as folder:
        return rendered(assets, way_of(Path(folder, "mine"), way, *more))


def ports_of(settings: ServeSettings) -> dict[str, int]:
    """The ports that `serve` listens on, by the names that the manifests give them."""
    assert settings.health_address is not None
    assert settings.metrics_address is not None
    return {
        "webhook": settings.address.port,
        "probes": settings.health_address.port,
        "metrics": settings.metrics_address.port,
    }


def environment_of(deployment: Json, container: Json) -> dict[str, str]:
    """What a container of the Deployment's pods finds in its environment."""
    fields = {"metadata.namespace": deployment["metadata"]["namespace"]}
    return {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }


def write_registrations(assets: Assets, way: str, folder: Path) -> str:
    """Writes the webhook configurations of a way to install into a folder: the file's name there, for `register`."""
    name = f"{way}.yaml"
    found = [each for each in installation(assets, way) if each["kind"] in REGISTRATIONS]
    (folder / name).write_text(yaml.safe_dump_all(found))
    return name


def plural(kind: str) -> str:
    """The resource's name in URLs, for every kind that the manifests have."""
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def url(document: Json) -> str:
    """Where the object is once it has been applied."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace", "")
    return path(document["apiVersion"], plural(document["kind"]), namespace=namespace, name=metadata["name"])


def install_foreign_kinds(plane: ControlPlane) -> None:
    """CustomResourceDefinitions that take any field: what is in such objects is not ours to test here."""
    for kind, group in FOREIGN_KINDS.items():
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural(kind), "singular": kind.lower()}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural(kind)}.{group}"},
            "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
        }
        collection = path("apiextensions.k8s.io/v1", "customresourcedefinitions")
        _ = plane.client.create(collection, definition).object
    for kind, group in FOREIGN_KINDS.items():
        there = path(f"{group}/v1", plural(kind))
        wait_until(lambda there=there: plane.client.get(there).ok, f"{kind} is served")  # type: ignore[misc]
        plane.wait_discovered(group, plural(kind))


def remove_foreign_kinds(plane: ControlPlane) -> None:
    """Takes them out again, and waits until they are no longer served."""
    for kind, group in FOREIGN_KINDS.items():
        name = f"{plural(kind)}.{group}"
        plane.client.delete(path("apiextensions.k8s.io/v1", "customresourcedefinitions", name=name))
        wait_until(lambda kind=kind, group=group: not plane.client.get(path(f"{group}/v1", plural(kind))).ok, name)  # type: ignore[misc]


def remove(plane: ControlPlane, documents: Iterable[Json]) -> None:
    """Deletes what was applied; does by hand what the namespace controller would, where there is none."""
    documents = list(documents)
    # The Service first: while a registration is still called, it shall not lead to an address of somebody else's.
    for document in sorted(documents, key=lambda document: document["kind"] != "Service"):
        plane.client.delete(url(document))
    for namespace in [document["metadata"]["name"] for document in documents if document["kind"] == "Namespace"]:
        left = plane.client.get(path("v1", "namespaces", name=namespace))
        if left.ok:
            emptied = {**left.object, "spec": {"finalizers": []}}
            plane.client.replace(path("v1", "namespaces", name=namespace, subresource="finalize"), emptied)
    for document in documents:
        if document["kind"] == "CustomResourceDefinition":  # its objects go first
            wait_until(lambda: not plane.client.get(url(document)).ok, document["metadata"]["name"])  # noqa: B023 -- called here
