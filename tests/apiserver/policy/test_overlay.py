"""The overlay default-tolerations as files: the base, and one entry more that waits for nobody longer than it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.apiserver.registration.samples import MANIFESTS
from tests.controlplane.registration import configurations

if TYPE_CHECKING:
    from tests.controlplane.plane import ControlPlane

Json = dict[str, Any]

OVERLAY: Final = MANIFESTS / "overlays" / "default-tolerations"
(CONFIGURATION,) = configurations(OVERLAY, ["mutating-webhook.yaml"])
(ENTRY,) = CONFIGURATION["webhooks"]
(_, BASE) = configurations(MANIFESTS)
BASE_ENTRIES: Final = {entry["name"]: entry for entry in BASE["webhooks"]}


def test_it_is_asked_about_whatever_may_lack_tolerations() -> None:
    (rule,) = ENTRY["rules"]
    assert rule["resources"] == ["resourceclaims", "resourceclaimtemplates"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert [condition["name"] for condition in ENTRY["matchConditions"]] == ["not-being-deleted", "spec-differs"]


def test_all_else_is_as_in_the_base() -> None:
    """Templates have the same conditions there."""
    templates = BASE_ENTRIES["templates.mutate.devicetaint.io"]
    assert BASE["kind"] == CONFIGURATION["kind"]
    assert CONFIGURATION["metadata"] == {**BASE["metadata"], "name": "device-taint-webhook-default-tolerations"}
    differing = {key for key in {*ENTRY, *templates} if ENTRY.get(key) != templates.get(key)}
    assert differing == {"name", "rules"}
    (rule,), (base_rule,) = ENTRY["rules"], templates["rules"]
    assert {**rule, "resources": []} == {**base_rule, "resources": []}


@pytest.mark.apiserver
def test_kustomize_gives_the_base_and_the_entry(plane: ControlPlane) -> None:
    def built(folder: str) -> list[Json]:
        done = plane.kubectl("kustomize", MANIFESTS / folder)
        assert (done.code, done.stderr) == (0, ""), done
        return list(yaml.safe_load_all(done.stdout))

    base, overlay = built("base"), built("overlays/default-tolerations")
    assert [document for document in overlay if document not in base] == [CONFIGURATION]
    assert [document for document in overlay if document in base] == base
