"""install.yaml and install-OVERLAY.yaml: what the overlay renders, with the version in images and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from release.installations import file_of
from release.source import REPOSITORY as IN_TREE
from tests.apiserver.manifests.installing import OVERLAYS, rendered
from tests.controlplane.assets import Assets
from tests.release.releasing import REGISTRY, REPOSITORY
from webhook import __version__

LABEL = "app.kubernetes.io/version"
IMAGE = f"{REGISTRY}/device-taint-webhook:{__version__}"


def _take_version(document: dict[str, Any]) -> None:
    """Takes out what a release adds, which has to be there."""
    assert document["metadata"]["labels"].pop(LABEL) == __version__, document["kind"]
    if document["kind"] == "PrometheusRule":
        for rule in (rule for group in document["spec"]["groups"] for rule in group["rules"]):
            before, released, page = rule["annotations"]["runbook_url"].partition(f"{REPOSITORY}/blob/v{__version__}/")
            assert (before, bool(released)) == ("", True), "it leads elsewhere"
            rule["annotations"]["runbook_url"] = f"{IN_TREE}/blob/main/{page}"
    template = document["spec"].get("template") if document["kind"] == "Deployment" else None
    if template is None:
        return
    assert template["metadata"]["labels"].pop(LABEL) == __version__
    assert LABEL not in document["spec"]["selector"]["matchLabels"]
    for container in template["spec"]["containers"]:
        assert container["image"] == IMAGE
        container["image"] = "device-taint-webhook"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_it_is_the_overlay_with_the_version_of_the_release(files: Path, assets: Assets, overlay: str) -> None:
    """L16, and A6: one file that needs nothing else."""
    documents = list(yaml.safe_load_all((files / file_of(overlay)).read_text()))
    for document in documents:
        _take_version(document)
    assert documents == rendered(assets, f"overlays/{overlay}")
