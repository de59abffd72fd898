"""An installation with the controller of patches: its flags and its rights, each of which is put to use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from tests.apiserver.accounts import RBAC_KINDS, Token, asked_for, refused, rights_of, wait_granted
from tests.apiserver.manifests.installing import OWN_NAMESPACE, Json, environment_of, installation
from tests.apiserver.patches.closing import RULES, ClosingFleet
from tests.apiserver.patches.values import COLLECTION
from tests.apiserver.patching import PatchProcess
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.names import PATCH_ACCOUNT, PATCHER
from webhook.config.workers import PatchSettings, parse_patch

WAY: Final = "patch-controller"
SERVE_ACCOUNT: Final = "device-taint-webhook"
_WRITES: Final = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.fixture(scope="module")
def audited(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane that writes down who asks for what, with the kind and the account of the installation."""
    with ControlPlane(assets, audit=True) as plane:
        documents = installation(assets, WAY)
        kinds = RBAC_KINDS | {"CustomResourceDefinition"}
        ours = [each for each in documents if each["kind"] in kinds]
        done = plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(ours))
        assert done.code == 0, done
        wait_until(lambda: plane.client.get(COLLECTION).ok, "patches are served")
        granted = rights_of(documents, PATCH_ACCOUNT)
        wait_until(lambda: wait_granted(plane, PATCH_ACCOUNT, granted), "the authorizer knows the roles")
        yield plane


def test_patch_may_do_what_it_does_and_nothing_else(audited: ControlPlane) -> None:
    """Rules come, change and go; statuses, an Event, the lease; and it gives the lease back."""
    token = Token(audited, PATCH_ACCOUNT)
    elect = ("--leader-elect", f"--namespace={OWN_NAMESPACE}")
    with PatchProcess(audited, *elect, kubeconfig=token.kubeconfig) as process:
        process.wait_for("working")
        fleet = ClosingFleet(audited, "rights", ["node-0"])
        fleet.wait_known(4)
        fragile = [{"cel": {"expression": f'device.attributes["{fleet.driver}"].memory > 40'}}]
        stored = fleet.patch("one", driver=fleet.driver, selectors=fragile)
        fleet.wait_expanded(stored)
        rule = fleet.rules(stored["metadata"]["uid"])[0]["metadata"]["name"]
        _ = audited.client.patch(f"{RULES}/{rule}", {"spec": {"taint": {"value": "x"}}}).object
        wait_until(
            lambda: "value" not in audited.client.get(f"{RULES}/{rule}").object["spec"]["taint"], "it is put back"
        )
        fleet.drop("one")
        wait_until(lambda: not fleet.rules(), "its rules are gone")
        wait_until(lambda: ("events", "create") in _asked(token), "the fault is an Event")
        assert process.process.stop() == 0
    granted = rights_of(installation(audited.assets, WAY), PATCH_ACCOUNT)
    asked = asked_for(token.events())
    assert refused(token.events()) == []
    assert {each for each in asked if not any(right.covers(each) for right in granted)} == set()
    unused = {right for right in granted if not any(right.covers(each) for each in asked)}
    needed = {(each.resource, each.verb) for each in unused if each.verb != "list"}  # a server may not stream lists
    # Server-side apply is a PATCH, for which the server asks itself whether the account may create.
    assert needed == {("devicetaintrules", "create")}


def _asked(token: Token) -> set[tuple[str, str]]:
    return {(each.resource, each.verb) for each in asked_for(token.events())}


def _deployment(documents: list[Json]) -> Json:
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Deployment", PATCHER)]
    return found


def _container(documents: list[Json]) -> Json:
    container: Json
    (container,) = _deployment(documents)["spec"]["template"]["spec"]["containers"]
    return container


def _settings(documents: list[Json]) -> PatchSettings:
    container = _container(documents)
    return parse_patch("x", container["args"][1:], environment_of(_deployment(documents), container))


def test_patch_takes_its_flags(assets: Assets) -> None:
    documents = installation(assets, WAY)
    container, settings = _container(documents), _settings(documents)
    assert container["args"][0] == "patch"
    assert settings.lease == (OWN_NAMESPACE, PATCHER)
    assert settings.health_address is not None
    assert settings.metrics_address is not None
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
        "probes": settings.health_address.port,
        "metrics": settings.metrics_address.port,
    }


def test_controller_may_write_rules_and_statuses_and_nothing_else(assets: Assets) -> None:
    rights = rights_of(installation(assets, WAY), PATCH_ACCOUNT)
    assert {(each.resource, each.verb) for each in rights if each.verb in _WRITES} == {
        *(("devicetaintrules", verb) for verb in ("create", "patch", "delete")),
        ("resourceslicepatches/status", "patch"),
        ("events", "create"),
        *(("leases", verb) for verb in ("create", "update")),
    }
    (named,) = {(each.namespace, each.name) for each in rights if each.resource == "leases" and each.verb == "update"}
    assert named == (OWN_NAMESPACE, PATCHER)


@pytest.mark.whole
def test_slices_are_written_only_with_component_slice_attributes(assets: Assets) -> None:
    """That `patch` puts the right to use, and needs no other, is shown beside the tests of patches."""
    before = installation(assets, WAY)
    documents = installation(assets, WAY, "components/slice-attributes")
    added = rights_of(documents, PATCH_ACCOUNT) - rights_of(before, PATCH_ACCOUNT)
    assert {(each.resource, each.verb) for each in added} == {("resourceslices", "patch")}
    assert rights_of(documents, SERVE_ACCOUNT) == rights_of(before, SERVE_ACCOUNT)
    assert not _settings(before).slice_attributes
    assert _settings(documents).slice_attributes
