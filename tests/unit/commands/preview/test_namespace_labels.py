"""Profiles that match by labels of namespaces, in preview."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.commands.api_server import cluster_of, serving
from tests.unit.commands.preview.test_windows import NIGHTLY, SHOWN, asked, crowd, policy
from tests.unit.commands.preview_runner import PreviewRunner

CRITICAL = {"namespaces": {"labels": {"tier": "critical"}}}
SKIP = {"action": "skip"}
LABELLED = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"tier": "critical"}}}
UNKNOWN = "labels of namespaces are unknown, so profiles match none of them: ml"


def told(run_preview: PreviewRunner, policy: Any, *namespaces: Any, live: bool) -> Any:
    """The preview over a dump, or over a cluster, which refuses to list namespaces if there are none."""
    if not live:
        return run_preview.told(asked(), dump=[*crowd(3), *namespaces], policy=policy)
    tables = cluster_of(*crowd(3), *namespaces, empty=["DeviceTaintRule", "DeviceClass", "Node"])
    if not namespaces:
        tables.objects["/api/v1/namespaces"] = 403
    with serving(tables, run_preview.folder):
        return run_preview.told(asked(), "--kubeconfig", "kubeconfig", dump=None, policy=policy)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    ("profiles", "namespaces", "evicted", "noted"),
    [
        ([{**CRITICAL, "maxPerMinute": 5}, SKIP], [LABELLED], 3, []),
        ([{**CRITICAL, **SKIP}, {}], [LABELLED], 0, []),
        ([{**CRITICAL, **NIGHTLY}, SKIP], [LABELLED], 3, [f"windows of profile 0, for pods here: {SHOWN}"]),
        ([{**CRITICAL, **SKIP}, {}], [], 3, [UNKNOWN]),
        ([{"namespaces": {"names": ["ml"]}, **SKIP}, {}], [], 0, []),
    ],
    ids=["only critical", "all but critical", "windows of critical", "unknown labels", "names need no labels"],
)
def test_labels_of_namespaces_choose_the_profile_as_they_do_for_the_worker(
    profiles: list[Any],
    namespaces: list[Any],
    evicted: int,
    noted: list[str],
    run_preview: PreviewRunner,
    *,
    live: bool,
) -> None:
    found = told(run_preview, policy(*profiles), *namespaces, live=live)
    assert found["summary"]["evicted"] == evicted
    assert [each for each in found["notes"] if "profile" in each] == noted
