"""Doing something to an object, and seeing who was asked about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import pytest

from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import Json, collection, url
from tests.controlplane.client import Client, Reply
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

NOBODY: list[str] = []
MUTATE = ["/mutate"]
VALIDATE = ["/validate"]
BOTH = ["/mutate", "/validate"]

_EVALUATION_ERRORS = re.compile(
    r"^apiserver_admission_match_condition_evaluation_errors_total\{.*devicetaint\.io.*\} (\S+)$", re.MULTILINE
)

_V1BETA2: Final = pytest.param("v1beta2", marks=pytest.mark.whole)
"""Its objects look as those of v1 do."""
in_every_version = pytest.mark.parametrize("version", ["v1", _V1BETA2, "v1beta1"], indirect=True)
in_every_rule_version = pytest.mark.parametrize("rule_version", ["v1", _V1BETA2, "v1alpha3"], indirect=True)


def cases(table: dict[str, Any]) -> pytest.MarkDecorator:
    """Parametrizes shape, with the keys as ids."""
    return pytest.mark.parametrize("shape", table.values(), ids=table.keys())


def table(rows: Iterable[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Parametrizes row: all but the first, which is the id and may say since which release there is such a thing."""
    return pytest.mark.parametrize("row", rows, ids=[text for text, *_ in rows], indirect=True)


def asked(webhook: RecordingWebhook, obj: Json) -> list[str]:
    """Which paths were called for the object since the last look, in order of their names.

    How often does not matter: an update that fails on a cached object is tried again on the stored one.
    """
    calls = webhook.take()
    resource, version = collection(obj).rpartition("/")[2], obj["apiVersion"].rpartition("/")[2]
    for call in calls:  # in the version sent: each is listed, none is converted
        assert (call.resource, call.version, call.requested_version) == (resource, version, version)
        assert call.subresource == ""
    return sorted({call.path for call in calls})


def evaluation_errors(plane: ControlPlane) -> float:
    """How many of our matchConditions the API server could not evaluate."""
    return sum(float(count) for count in _EVALUATION_ERRORS.findall(plane.metrics()))


def follow(
    client: Client, webhook: RecordingWebhook, obj: Json, *steps: tuple[str, Callable[[], Reply], list[str]]
) -> None:
    """Does one after the other, each of which must succeed; who is asked about it must be who the step says."""
    found = {}
    for name, action, _ in steps:
        stored = action().object
        found[name] = asked(webhook, obj)
        if "resourceVersion" in stored["metadata"]:
            wait_cached(client, obj, stored)
    assert found == {name: paths for name, _, paths in steps}


def wait_cached(client: Client, obj: Json, stored: Json) -> None:
    """Waits until the API server's cache has what was stored.

    The next update starts from there, and from an older object it would ask about the wrong change first, then fail to
    store it and try again.
    """
    version = stored["metadata"]["resourceVersion"]
    # A server whose cache is three seconds late says so with 504.
    wait_until(
        lambda: client.get(url(obj), resourceVersion=version).code != HTTPStatus.GATEWAY_TIMEOUT, "the cache has it"
    )


def put_as_by_author(client: Client, obj: Json) -> Reply:
    """Replaces the object with itself, as somebody would who does not know that it is being deleted."""
    stored = client.get(url(obj)).object
    del stored["metadata"]["managedFields"]
    stored["metadata"].pop("deletionTimestamp", None)
    return client.replace(url(obj), stored)


def created(client: Client, obj: Json, *, dry_run: bool = True) -> Reply:
    return client.create(collection(obj), obj, dry_run=dry_run)
