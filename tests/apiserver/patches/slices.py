"""A cluster with component slice-attributes, a driver with the real library, and what they write."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import yaml

from tests.apiserver.manifests.installing import MANIFESTS, REGISTRATIONS, overlay_of, rendered
from tests.apiserver.patches.values import COLLECTION, DEFINITION, patch
from tests.apiserver.policy.stage import RestartablePlane, Stage
from tests.controlplane.assets import EXAMPLE_DRIVER
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.slice_publisher import USER_AGENT
from webhook.patches.published import ORIGINALS

Json = dict[str, Any]

SLICES: Final = path("resource.k8s.io/v1", "resourceslices")
QUIET_SECONDS: Final = 3.0
"""Without a write for so long there is none to come: drivers in these tests look again after a second."""
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


class SliceStage(Stage):
    """Registers and starts our server with component slice-attributes."""

    def __init__(self, plane: RestartablePlane, folder: Path) -> None:
        super().__init__(plane)
        self._folder = folder

    def begin(self) -> None:
        self.install()
        definition = yaml.safe_load((MANIFESTS / DEFINITION).read_text())
        collection = path("apiextensions.k8s.io/v1", "customresourcedefinitions")
        _ = self.client.create(collection, definition, field_validation="Strict").object
        wait_until(lambda: self.client.get(COLLECTION).ok, "patches are served")
        components = ["components/patches", "components/patch-controller", "components/slice-attributes"]
        for component in components:
            done = self.plane.kubectl("apply", "-f", MANIFESTS / component / "access.yaml")
            assert done.code == 0, done
        documents = rendered(self.plane.assets, overlay_of(self._folder / "mine", components=components))
        found = [each for each in documents if each["kind"] in REGISTRATIONS]
        (self._folder / "registrations.yaml").write_text(yaml.safe_dump_all(found))
        self.start_webhook()
        self.register(["registrations.yaml"], self._folder)

    def start_webhook(self) -> None:
        """As the component configures it."""
        self.webhook = self.new_webhook("--slice-attributes").__enter__()

    def come_back(self) -> None:
        """Our server again, after it was stopped."""
        self.start_webhook()
        self.register(["registrations.yaml"], self._folder)

    def slices(self, driver: str) -> list[Json]:
        """The slices of a driver, by name."""
        found = [each for each in self.client.get(SLICES).items if each["spec"]["driver"] == driver]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def devices(self, driver: str) -> dict[str, Json]:
        """The devices of a driver by name, with what they have of attributes and capacity."""
        return {
            device["name"]: {**device.get("attributes", {}), **device.get("capacity", {})}
            for each in self.slices(driver)
            for device in each["spec"].get("devices", ())
        }

    def originals(self, driver: str) -> list[Any]:
        """What the annotations of its slices hold; None where there is none."""
        texts = [each["metadata"].get("annotations", {}).get(ORIGINALS) for each in self.slices(driver)]
        return [None if text is None else json.loads(text) for text in texts]

    def touch(self, driver: str) -> None:
        """What the controller does: a patch that says nothing, to each slice."""
        for each in self.slices(driver):
            reply = self.client.patch(f"{SLICES}/{each['metadata']['name']}", {})
            assert reply.ok, reply

    def put(self, name: str, **devices: Any) -> None:
        """A patch, as soon as our server knows it and has applied it to its driver's slices."""
        _ = self.client.create(COLLECTION, patch(devices, name)).object
        driver = devices["filter"]["driver"]
        self.touch_until(driver, lambda: any(self.originals(driver)))

    def take(self, name: str, driver: str) -> None:
        """Takes a patch away, and waits until the slices are without what it sets."""
        assert self.client.delete(f"{COLLECTION}/{name}").ok
        self.touch_until(driver, lambda: '"now"' not in json.dumps(self.originals(driver)))

    def touch_until(self, driver: str, done: Any) -> None:
        """Our server may need a moment to hear of a patch, and what it does not know it does not do."""

        def touched() -> bool:
            self.touch(driver)
            return bool(done())

        wait_until(touched, "the patch is carried out", every=0.1)

    # --- writes ----------------------------------------------------------------------------------

    def writes(self, driver: str) -> list[str]:
        """Writes of the driver's slices that changed something, as far as the audit log has them, in order.

        `driver create` and `driver update`, with the name of its program if it is not the usual one; else `touch`.
        """
        found: list[str] = []
        seen: dict[str, str] = {}
        for event in self.plane.audit_events():
            if event["verb"] not in _WRITES or event.get("objectRef", {}).get("resource") != "resourceslices":
                continue
            stored = event.get("responseObject") or {}
            if event["responseStatus"]["code"] not in (200, 201) or stored.get("spec", {}).get("driver") != driver:
                continue
            if "dryRun" in event["requestURI"]:
                continue
            name, version = stored["metadata"]["name"], stored["metadata"]["resourceVersion"]
            if seen.get(name) == version:
                continue  # nothing came of it
            seen[name] = version
            program = event.get("userAgent", "").partition("/")[0]
            who = {USER_AGENT: "driver", EXAMPLE_DRIVER: EXAMPLE_DRIVER}.get(program)
            found.append(f"{who} {event['verb']}" if who else "touch")
        return found

    def settled(self, driver: str, writes: int = 0) -> list[str]:
        """All its writes, once there are so many at least and none has come for a while."""
        found = self.writes(driver)
        since = time.monotonic()

        def quiet() -> bool:
            nonlocal found, since
            now = self.writes(driver)
            if now != found:
                found, since = now, time.monotonic()
            return len(found) >= writes and time.monotonic() - since > QUIET_SECONDS

        wait_until(quiet, "no more writes", every=0.25)
        return found
