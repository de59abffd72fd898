"""Chart and kustomize render the same objects, for each overlay and for each component."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.chart.helming import (
    COMPONENT_VALUES,
    EVERYTHING,
    OVERLAY_VALUES,
    Helm,
    Json,
    is_hook,
)
from tests.apiserver.manifests.installing import overlay_of, rendered
from tests.controlplane.assets import Assets
from webhook import __version__

_SELF_MANAGED: Final = "../certs/self-managed"
_WITH_NAMESPACE: Final = {"namespace": {"create": True}}
_TOGETHER: Final = (
    *("high-availability", "evict-delegated", "default-tolerations", "patches", "patch-controller"),
    *("slice-attributes", "monitoring", "client-certificates", "host-network", "watch-pods"),
)
"""Components that EVERYTHING turns on; one by one they are for tests marked `whole`."""

# --- the only differences ------------------------------------------------------------------------

_HELM_LABELS: Final = frozenset({"helm.sh/chart", "app.kubernetes.io/version"})
"""The manifests name no version; a release adds it (release/installations.py)."""
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OWN_IMAGE: Final = "device-taint-webhook"
_KEPT: Final = "helm.sh/resource-policy"
"""An annotation: the object stays when the release is uninstalled."""
KEPT: Final = frozenset({("CustomResourceDefinition", "resourceslicepatches.devicetaint.io")})


def _without_helm(value: Any) -> Any:
    """Labels as kustomize's, and lists whose entries have names in the order of these."""
    if isinstance(value, dict):
        kept = {key: _without_helm(each) for key, each in value.items() if key not in _HELM_LABELS}
        if kept.get("image") == f"{OWN_IMAGE}:{__version__}":
            kept["image"] = OWN_IMAGE
        return {**kept, _MANAGED_BY: "kustomize"} if kept.get(_MANAGED_BY) == "Helm" else kept
    if isinstance(value, list):
        items = [_without_helm(each) for each in value]
        named = all(isinstance(each, dict) and "name" in each for each in items)
        return sorted(items, key=lambda each: str(each["name"])) if named else items
    return value


def objects(documents: list[Json]) -> dict[tuple[str, str, str], Json]:
    """By kind, namespace and name, as far as they are to be the same. A release's hooks are not among its objects."""
    found = {}
    for document in documents:
        if is_hook(document):
            continue
        clean = _without_helm(document)
        metadata = clean["metadata"]
        if (clean["kind"], metadata["name"]) in KEPT and metadata.get("annotations", {}).pop(_KEPT, "") == "keep":
            metadata = clean["metadata"] = {key: each for key, each in metadata.items() if key != "annotations" or each}
        found[clean["kind"], metadata.get("namespace", ""), metadata["name"]] = clean
    return found


# -------------------------------------------------------------------------------------------------


def _same(helm: Helm, values: Json, kustomized: list[Json], *, namespace: str = "device-taint-webhook") -> None:
    ours = objects(helm.template({**_WITH_NAMESPACE, **values}, namespace=namespace))
    theirs = objects(kustomized)
    assert sorted(ours) == sorted(theirs)
    for key, document in theirs.items():
        assert ours[key] == document, key


@pytest.mark.parametrize("overlay", OVERLAY_VALUES)
def test_chart_renders_what_the_overlay_renders(assets: Assets, helm: Helm, overlay: str) -> None:
    _same(helm, OVERLAY_VALUES[overlay], rendered(assets, f"overlays/{overlay}"))


@pytest.mark.parametrize(
    "component",
    [pytest.param(each, marks=pytest.mark.whole if each in _TOGETHER else ()) for each in COMPONENT_VALUES],
)
def test_chart_renders_what_the_component_adds(assets: Assets, helm: Helm, tmp_path: Path, component: str) -> None:
    before, values = COMPONENT_VALUES[component]
    components = [_SELF_MANAGED, *(f"components/{name}" for name in dict.fromkeys([*before, component]))]
    if component == "evict-acting":
        components = components[:-1]  # which the one before it includes
    _same(helm, values, rendered(assets, overlay_of(tmp_path / "mine", components=components)))


def test_chart_without_certificates_of_its_own_is_the_base(assets: Assets, helm: Helm) -> None:
    base = rendered(assets, "base")
    for entry in (entry for document in base for entry in document.get("webhooks", ())):
        entry["clientConfig"]["caBundle"] = "b3Vycw=="
    _same(helm, {"certificates": {"provider": "secret", "caBundle": "b3Vycw=="}}, base)


@pytest.mark.parametrize("certificates", ["self-managed", pytest.param("cert-manager", marks=pytest.mark.whole)])
def test_chart_with_everything_in_another_namespace_is_all_components_there(
    assets: Assets, helm: Helm, tmp_path: Path, certificates: str
) -> None:
    folder = overlay_of(
        tmp_path / "mine",
        components=[f"../certs/{certificates}", *(f"components/{name}" for name in _TOGETHER)],
        namespace="platform-dra",
        transformers=["transformers/namespace"],
    )
    values = {**EVERYTHING, "certificates": {"provider": certificates}}
    _same(helm, values, rendered(assets, folder), namespace="platform-dra")
