"""The overlay with the controller of patches: its flags and rights, and that it needs no more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.apiserver.accounts import rights_of
from tests.apiserver.manifests.installing import OWN_NAMESPACE, environment_of, rendered
from webhook.api.names import PATCH_ACCOUNT, PATCHER
from webhook.config.patch import parse_patch

if TYPE_CHECKING:
    from tests.controlplane.assets import Assets

pytestmark = pytest.mark.apiserver

OVERLAY: Final = "overlays/patch-controller"
_WRITES: Final = {"create", "update", "patch", "delete", "deletecollection"}


def test_patch_takes_its_flags(assets: Assets) -> None:
    documents = rendered(assets, OVERLAY)
    (deployment,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Deployment", PATCHER)]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    verb, *flags = container["args"]
    settings = parse_patch("x", flags, environment_of(deployment, container))
    assert verb == "patch"
    assert settings.lease == (OWN_NAMESPACE, PATCHER)
    assert settings.health_address is not None
    assert settings.metrics_address is not None
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
        "probes": settings.health_address.port,
        "metrics": settings.metrics_address.port,
    }


def test_controller_may_write_rules_and_statuses_and_nothing_else(assets: Assets) -> None:
    rights = rights_of(rendered(assets, OVERLAY), PATCH_ACCOUNT)
    assert {(each.resource, each.verb) for each in rights if each.verb in _WRITES} == {
        *(("devicetaintrules", verb) for verb in ("create", "patch", "delete")),
        ("resourceslicepatches/status", "patch"),
        ("events", "create"),
        *(("leases", verb) for verb in ("create", "update")),
    }
    (named,) = {(each.namespace, each.name) for each in rights if each.resource == "leases" and each.verb == "update"}
    assert named == (OWN_NAMESPACE, PATCHER)
