"""The webhook and the fallback together, and the fallback after the webhook has been killed."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.apiserver.fallbacks.syncing import (
    API,
    DEFAULT,
    FAST_SECONDS,
    FORBIDDEN,
    POLICY,
    claim,
    collection,
    exported,
    plural,
)
from tests.apiserver.manifests.installing import write_registrations
from tests.apiserver.test_cases import MINOR
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.fallbacks.syncing import Syncing

Json = dict[str, Any]

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(MINOR < 36, reason="MutatingAdmissionPolicy is served since 1.36"),
]

OF_DRIVERS: Final = {"key": "gpu.example.com/hot", "operator": "Exists", "effect": "NoSchedule"}
BOTH: Final = {
    **POLICY,
    "defaultTolerations": [
        *POLICY["defaultTolerations"],
        {"name": "of-drivers", "match": {"drivers": ["gpu.example.com"]}, "tolerations": [OF_DRIVERS]},
    ],
}
"""The second entry is one that only the webhook can judge."""
NOTE: Final = "devicetaint.io/defaulted-tolerations"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def beside(syncing: Syncing) -> Iterator[Syncing]:
    """The webhook with the entries of overlay default-tolerations, and the exported objects."""
    stage = syncing.stage
    try:
        _start(syncing)
        for each in exported(BOTH):
            assert syncing.client.create(path(API, plural(each["kind"])), each).ok
        # the message of API servers comes first, as their policies are asked first
        wait_until(lambda: "ValidatingAdmissionPolicy" in syncing.refusal(FORBIDDEN), "in force", seconds=FAST_SECONDS)
        yield syncing
    finally:
        stage.unregister()
        stage.stop_webhook()
        syncing.clear()


def _start(syncing: Syncing) -> None:
    """Starts the webhook, and has it called instead of any other."""
    stage = syncing.stage
    stage.unregister()
    stage.start_webhook()
    stage.use(BOTH)
    file = write_registrations(stage.plane.assets, "default-tolerations", stage.plane.folder)
    stage.register([file], stage.plane.folder)


def _new(kind: str, *tolerations: Json) -> Json:
    return claim(*tolerations, kind=kind, name=f"beside-{next(_numbers)}")


def _lists(obj: Json) -> list[Json]:
    spec = obj["spec"]["spec"] if obj["kind"].endswith("Template") else obj["spec"]
    return list(spec["devices"]["requests"][0]["exactly"].get("tolerations") or [])


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_each_default_is_there_once_whoever_adds_it_and_stays_when_the_webhook_is_gone(
    beside: Syncing, kind: str
) -> None:
    obj = _new(kind)
    url = f"{collection(obj)}/{obj['metadata']['name']}"
    kubectl = beside.stage.plane.kubectl
    done = kubectl("apply", "-f", "-", stdin=json.dumps(obj))
    assert done.code == 0, done
    stored = beside.client.get(url).object
    assert sorted(map(str, _lists(stored))) == sorted(map(str, [DEFAULT, OF_DRIVERS]))
    assert kubectl("apply", "-f", "-", stdin=json.dumps(obj)).code == 0
    assert beside.client.get(url).object == stored
    os.kill(beside.stage.webhook.process.pid, signal.SIGKILL)
    try:
        wait_until(lambda: beside.stage.webhook.process.code is not None, "the webhook is gone")
        assert "(rule no-maintenance)" in beside.refusal(FORBIDDEN)
        wait_until(lambda: beside.given() == [DEFAULT], "added", seconds=FAST_SECONDS)
        assert beside.given({**DEFAULT, "tolerationSeconds": 5}) == [{**DEFAULT, "tolerationSeconds": 5}]
        # the author's own manifest is still accepted: what was added is put back, also what the webhook had added
        meta = {
            **obj["metadata"],
            "resourceVersion": stored["metadata"]["resourceVersion"],
            "labels": {"changed": "yes"},
        }
        if kind.endswith("Template"):
            obj["spec"]["metadata"] = stored["spec"].get("metadata", {})
        manifest = {**obj, "metadata": meta}
        # the policy for updates is another one than the policy for creates, and may be compiled after it
        put_back = functools.partial(beside.client.replace, url, manifest)
        wait_until(lambda: put_back(dry_run=True).ok, "put back", seconds=FAST_SECONDS)
        replaced = put_back()
        assert replaced.ok, replaced.message
        assert replaced.object["spec"] == stored["spec"]
        assert replaced.object["metadata"]["annotations"][NOTE] == stored["metadata"]["annotations"][NOTE]
        done = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(obj))
        assert done.code == 0, done
        assert beside.client.get(url).object["spec"] == stored["spec"]
    finally:
        beside.client.delete(url)
        _start(beside)
