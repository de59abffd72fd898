"""The controller of patches has slices written again: a patch in slices needs no hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.accounts import Token, asked_for, refused
from tests.apiserver.patches.slices import SliceStage
from tests.apiserver.patches.values import COLLECTION, patch
from tests.apiserver.patching import PatchProcess
from tests.apiserver.planes import own_plane
from tests.controlplane.processes import wait_until
from tests.controlplane.slice_publisher import SlicePublisher
from webhook.api.names import PATCH_ACCOUNT

Json = dict[str, Any]

MODEL: Final = {"string": "a100"}
APPLIED: Final = ("True", "AttributesApplied")
SOON_SECONDS: Final = 180.0


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SliceStage]:
    with own_plane(request, since=34, audit=True) as plane:
        stage = SliceStage(plane, tmp_path_factory.mktemp("registrations"))
        stage.begin()
        yield stage
        stage.stop_webhook()


@pytest.fixture(scope="module")
def token(stage: SliceStage) -> Token:
    """Of the account of the manifests."""
    return Token(stage.plane, PATCH_ACCOUNT)


@pytest.fixture(scope="module", autouse=True)
def controller(stage: SliceStage, token: Token) -> Iterator[PatchProcess]:
    with PatchProcess(stage.plane, "--slice-attributes", kubeconfig=token.kubeconfig) as process:
        yield process.wait_for("working")


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return f"{request.node.name.removeprefix('test_').replace('_', '-')[:40].rstrip('-')}.example.com"


def publisher(stage: SliceStage, folder: Path, driver: str, *devices: Json) -> SlicePublisher:
    return SlicePublisher(stage.plane.kubeconfig, folder, driver, ("pool", [list(devices)]))


def device(name: str = "gpu-0") -> Json:
    return {"name": name, "attributes": {"model": MODEL}}


def put(stage: SliceStage, name: str, driver: str, **attributes: Json) -> None:
    fields = {"filter": {"driver": driver}, "attributes": {f"{driver}/{key}": each for key, each in attributes.items()}}
    assert stage.client.apply(f"{COLLECTION}/{name}", patch(fields, name), field_manager="admin").ok


def status(stage: SliceStage, name: str) -> tuple[int, tuple[str, str], str]:
    """Devices that are patched, and status, reason and message of the condition."""
    found = stage.client.get(f"{COLLECTION}/{name}").object.get("status", {})
    for each in found.get("conditions", ()):
        if each["type"] == "AttributesApplied":
            return found["patchedDevices"], (each["status"], each["reason"]), each["message"]
    return -1, ("", ""), ""


def test_patch_is_applied_changed_and_taken_back_without_a_hand(
    stage: SliceStage, token: Token, driver: str, tmp_path: Path
) -> None:
    """P-8, P-10, P-18. The account needs no right that the component does not grant."""
    with publisher(stage, tmp_path, driver, device()):
        assert stage.settled(driver, 1) == ["driver create"]
        put(stage, "one", driver, model={"null": {}})
        wait_until(lambda: stage.devices(driver) == {"gpu-0": {}}, "it is applied", seconds=SOON_SECONDS)
        wait_until(lambda: status(stage, "one")[:2] == (1, APPLIED), "the status", seconds=SOON_SECONDS)
        assert stage.settled(driver, 3) == ["driver create", "touch", "driver update"]
        put(stage, "one", driver, model={"string": "other"})
        changed = {"gpu-0": {"model": {"string": "other"}}}
        wait_until(lambda: stage.devices(driver) == changed, "it is changed", seconds=SOON_SECONDS)
        assert stage.settled(driver, 5)[3:] == ["touch", "driver update"]
        assert stage.client.delete(f"{COLLECTION}/one").ok
        wait_until(lambda: stage.devices(driver)["gpu-0"] == {"model": MODEL}, "it is gone", seconds=SOON_SECONDS)
        assert stage.settled(driver, 7)[5:] == ["touch", "driver update"]
        assert stage.devices(driver) == {"gpu-0": {"model": MODEL}}
    assert refused(token.events()) == []
    assert ("resourceslices", "patch") in {(each.resource, each.verb) for each in asked_for(token.events())}


def test_what_is_refused_is_a_condition(stage: SliceStage, driver: str, tmp_path: Path) -> None:
    full = {"name": "gpu-0", "attributes": {f"a{number}": {"int": number} for number in range(32)}}
    with publisher(stage, tmp_path, driver, full, device("gpu-1")):
        stage.settled(driver, 1)
        put(stage, "two", driver, healthy={"bool": False})
        invalid = ("False", "DeviceInvalid")
        wait_until(lambda: status(stage, "two")[:2] == (1, invalid), "the condition", seconds=SOON_SECONDS)
        [name] = [each["metadata"]["name"] for each in stage.slices(driver)]
        message = status(stage, "two")[2]
        assert message.startswith(f"not applied to 1 device in 1 slice, which would be invalid: {name} (gpu-0: ")
        assert stage.client.delete(f"{COLLECTION}/two").ok


@pytest.mark.whole
def test_slices_that_no_webhook_changes_are_pending_until_one_answers(
    stage: SliceStage, driver: str, tmp_path: Path
) -> None:
    with publisher(stage, tmp_path, driver, device()):
        stage.settled(driver)
        put(stage, "three", driver, healthy={"bool": True})
        wait_until(lambda: status(stage, "three")[:2] == (1, APPLIED), "it is applied", seconds=SOON_SECONDS)
        stage.settled(driver)
        stage.stop_webhook()
        name = stage.slices(driver)[0]["metadata"]["name"]
        spec = {"devices": [device("gpu-0"), device("gpu-1")]}
        assert stage.client.patch(f"/apis/resource.k8s.io/v1/resourceslices/{name}", {"spec": spec}).ok
        pending = ("False", "SlicesPending")
        wait_until(lambda: status(stage, "three")[:2] == (0, pending), "it is pending", seconds=SOON_SECONDS)
        assert status(stage, "three")[2] == f"1 slice still to be written: {name}"
        stage.come_back()
        wait_until(lambda: status(stage, "three")[1] == APPLIED, "it is applied again", seconds=SOON_SECONDS)
        assert stage.client.delete(f"{COLLECTION}/three").ok
