"""Is the in-tree eviction controller at work? No API tells, so a rule that selects nothing shows whether it answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.api.meta import GROUP
from webhook.cluster.errors import ClusterError, NotFound
from webhook.cluster.surveys import IN_TREE_MANAGER
from webhook.eviction.modes import InTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.acting import ActingCluster
    from webhook.cluster.discovery import Collection

log = logging.getLogger(__name__)

CANARY: Final = "device-taint-webhook-canary"
_DRIVER: Final = "canary.devicetaint.io"
WAIT_SECONDS: Final = 5.0
"""How long it is waited for an answer; one came within 2 s (seen on 1.37.0)."""
_POLL_SECONDS: Final = 0.2


async def find_in_tree(
    cluster: ActingCluster,
    rules: Collection,
    suffix: str,
    *,
    wait_seconds: float = WAIT_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> InTree:
    """Whether the in-tree controller is at work: a canary rule of effect None, deleted at once. Raises ClusterError.

    `suffix` ends its name, so that several processes may look at the same time.
    UNKNOWN where rules are not served, or have no status or effect None, so that nothing could be seen.
    """
    try:
        collection = await rules.path()
    except NotFound:
        return InTree.UNKNOWN
    name = f"{CANARY}-{suffix}"
    path = f"{collection}/{name}"
    try:
        await _create(cluster, collection, name)
    except ClusterError as error:
        if error.code and error.code not in _INVALID:
            raise
        log.info("no canary", extra={"error": str(error)})
        return InTree.UNKNOWN
    try:
        return await _watch(cluster, path, clock() + wait_seconds, clock)
    finally:
        with contextlib.suppress(ClusterError):
            await cluster.delete(path)


_INVALID: Final = frozenset({400, 422})


async def _create(cluster: ActingCluster, collection: str, name: str) -> None:
    rule = {
        "apiVersion": f"{GROUP}/{collection.split('/')[3]}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {"driver": _DRIVER},
            "taint": {"key": f"{_DRIVER}/canary", "effect": "None"},
        },
    }
    await cluster.create(collection, rule)


async def _watch(cluster: ActingCluster, path: str, until: float, clock: Callable[[], float]) -> InTree:
    while True:
        rule: dict[str, Any] = msgspec.json.decode(await cluster.get(path))
        managers = [each.get("manager") for each in rule["metadata"].get("managedFields") or ()]
        if IN_TREE_MANAGER in managers:
            return InTree.ACTIVE
        if clock() >= until:
            return InTree.ABSENT
        await asyncio.sleep(_POLL_SECONDS)
