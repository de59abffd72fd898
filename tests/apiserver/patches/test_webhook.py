"""Patches with the component's registrations: what the definition leaves to the webhook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.manifests.installing import write_registrations
from tests.apiserver.patches.values import BAD, COLLECTION, GOOD, LEFT_TO_THE_WEBHOOK, TAINT, patch
from tests.apiserver.test_doctor import VALIDATING, doctor
from tests.builders import EARLIER_TEXT
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import registered
from tests.controlplane.webhook_process import WebhookProcess
from webhook.api.meta import parse_time


@pytest.fixture(scope="module")
def judged(defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("registrations")
    file = write_registrations(defined.assets, "patches", folder)
    with WebhookProcess() as webhook, registered(defined, folder, webhook.base_url, webhook.ca_pem, files=[file]):
        yield defined


@pytest.mark.parametrize("devices", GOOD.values(), ids=GOOD.keys())
def test_good_patch_is_admitted(judged: ControlPlane, devices: Any) -> None:
    reply = judged.client.create(COLLECTION, patch(devices), dry_run=True, field_validation="Strict")
    assert reply.ok, reply.message


@pytest.mark.parametrize("devices", LEFT_TO_THE_WEBHOOK.values(), ids=LEFT_TO_THE_WEBHOOK.keys())
def test_webhook_refuses_what_the_definition_cannot(judged: ControlPlane, devices: Any) -> None:
    """P-17, N-9."""
    reply = judged.client.create(COLLECTION, patch(devices), dry_run=True)
    assert (reply.code, "denied the request" in reply.message) == (422, True), reply.message


def test_bad_patch_is_refused_by_one_of_the_two(judged: ControlPlane) -> None:
    replies = {
        name: judged.client.create(COLLECTION, patch(devices), dry_run=True) for name, (devices, _) in BAD.items()
    }
    # The definition's schema is looked at after mutation and before validation; a wrong type is found by /mutate.
    assert {name: reply.code for name, reply in replies.items() if reply.code not in (400, 422)} == {}


def test_time_is_set_once_and_kept(judged: ControlPlane) -> None:
    """N-8, D-2: for every effect, on an update as well, and a given time stays."""
    client, where = judged.client, f"{COLLECTION}/timed"
    taints = [TAINT, {**TAINT, "effect": "NoExecute", "timeAdded": EARLIER_TEXT}]
    try:
        stored = client.create(COLLECTION, patch({"taints": taints}, "timed")).object
        first, second = stored["spec"]["devices"]["taints"]
        assert parse_time(first["timeAdded"]) is not None
        assert second["timeAdded"] == EARLIER_TEXT
        again = client.replace(where, {**stored, "spec": {"devices": {"taints": taints}}}).object
        assert again["spec"]["devices"]["taints"] == [first, second]
        assert again["metadata"]["generation"] == 1
        removed = client.patch(where, {"spec": {"devices": {"taints": None}}}).object
        assert "taints" not in removed["spec"]["devices"]
    finally:
        client.delete(where)


def test_patch_for_every_device_is_warned_about(judged: ControlPlane) -> None:
    reply = judged.client.create(COLLECTION, patch({"taints": [TAINT]}), dry_run=True)
    assert any("DT011" in text for text in reply.warnings), reply.warnings


def test_doctor_probes_patches_where_they_are_registered(judged: ControlPlane) -> None:
    """Other probes have no answer here: with --wait `doctor` would wait for theirs as well."""

    def answered() -> bool:
        found = {each["name"]: each["status"] for each in doctor(judged).checks}
        return found.get("probe patches.validate.devicetaint.io") == "ok"

    wait_until(answered, "the probe is answered")
    entries = judged.client.get(VALIDATING).object["webhooks"]
    others = [entry for entry in entries if not entry["name"].startswith("patches.")]
    try:
        assert judged.client.replace(VALIDATING, {**judged.client.get(VALIDATING).object, "webhooks": others}).ok
        amiss = doctor(judged).checks
        assert "probe patches.validate.devicetaint.io" not in {each["name"] for each in amiss}
        assert any("entries missing" in each["message"] and "patches.validate" in each["message"] for each in amiss)
    finally:
        assert judged.client.patch(VALIDATING, {"webhooks": entries}).ok


def test_patch_is_refused_while_the_webhook_is_down_and_can_still_be_deleted(
    defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("registrations")
    file = write_registrations(defined.assets, "patches", folder)
    where = f"{COLLECTION}/left"
    _ = defined.client.create(COLLECTION, patch({"taints": [TAINT]}, "left")).object
    with WebhookProcess() as webhook, registered(defined, folder, webhook.base_url, webhook.ca_pem, files=[file]):
        webhook.stop()
        refused = defined.client.create(COLLECTION, patch({"taints": [TAINT]}), dry_run=True)
        assert "patches.validate.devicetaint.io" in refused.message
        assert defined.client.delete(where).ok
