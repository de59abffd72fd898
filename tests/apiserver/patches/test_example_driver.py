"""A patch in the slices of Kubernetes' example driver, which is left as it is: its library waits half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.patches.slices import SliceStage
from tests.apiserver.planes import own_plane
from tests.apiserver.test_hardware import DRIVER, NODE, _driver
from tests.controlplane.assets import EXAMPLE_DRIVER
from tests.controlplane.processes import Process, wait_until

pytestmark = pytest.mark.slow

_LOOKS_AGAIN_SECONDS: Final = 90.0


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SliceStage]:
    with own_plane(request, EXAMPLE_DRIVER, since=37, audit=True) as plane:
        plane.add_node(NODE)
        stage = SliceStage(plane, tmp_path_factory.mktemp("registrations"))
        stage.begin()
        yield stage
        stage.stop_webhook()


def _own_writes(stage: SliceStage) -> int:
    return sum(each.startswith(f"{EXAMPLE_DRIVER} ") for each in stage.writes(DRIVER))


@pytest.mark.whole
def test_example_driver_adopts_a_patch_and_gets_its_values_back(
    stage: SliceStage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    driver: Process
    with _driver(stage.plane, tmp_path_factory.mktemp("driver")) as driver:
        published = stage.devices(DRIVER)
        name = next(each for each in published if "model" in published[each])
        own: dict[str, Any] = published[name]
        before = _own_writes(stage)
        stage.put(
            "example",
            filter={"driver": DRIVER, "device": name},
            attributes={f"{DRIVER}/model": {"null": {}}, f"{DRIVER}/healthy": {"bool": False}},
        )
        wait_until(lambda: _own_writes(stage) > before, "the driver adopts it", seconds=_LOOKS_AGAIN_SECONDS)
        patched = {each: value for each, value in own.items() if each != "model"}
        assert stage.devices(DRIVER) == {**published, name: {**patched, f"{DRIVER}/healthy": {"bool": False}}}
        adopted = _own_writes(stage)
        stage.take("example", DRIVER)
        assert stage.devices(DRIVER) == published
        wait_until(lambda: _own_writes(stage) > adopted, "the driver has it back", seconds=_LOOKS_AGAIN_SECONDS)
        assert stage.devices(DRIVER) == published
        assert driver.code is None, "it goes on as if nothing had happened"
