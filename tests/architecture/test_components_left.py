"""The commands of docs/install.md that delete what a component left name exactly its objects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
COMPONENTS: Final = ROOT / "manifests" / "components"
PAGE: Final = (ROOT / "docs" / "install.md").read_text()
LABELS: Final = {
    "eviction": {"evict", "evict-acting", "evict-delegated", "evict-replacement", "evict-without-delete"},
    "patches": {"patch-controller", "slice-attributes"},
}


def _labelled(component: str) -> list[tuple[str, str]]:
    """Return (component's directory, kind) of every object that carries the label."""
    found = []
    for path in sorted(ROOT.glob("manifests/**/*.yaml")):
        if "helm" in path.parts:
            continue
        for each in yaml.safe_load_all(path.read_text()):
            metadata = each.get("metadata") if isinstance(each, dict) else None
            if metadata and metadata.get("labels", {}).get("app.kubernetes.io/component") == component:
                found.append((path.parent.name, each["kind"]))
    return found


@pytest.mark.parametrize("component", sorted(LABELS))
def test_page_deletes_all_that_a_component_left_and_nothing_else(component: str) -> None:
    command = re.search(r"delete (deployment,\S+) -l \S+component=eviction\n", PAGE)
    assert command
    assert f"component={component}" in PAGE
    found = _labelled(component)
    assert {directory for directory, _ in found} <= LABELS[component]
    assert {kind.lower() for _, kind in found} <= set(command[1].split(","))


def test_pages_say_what_helm_4_refuses() -> None:
    assert "Helm 4 needs `--force-conflicts`" in PAGE
    assert "`evict.replicas` and `policy.document` instead" in (ROOT / "docs" / "runbooks.md").read_text()
