"""Detects the in-tree eviction controller: no API shows it, but it writes to the status of rules, and of a canary."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from webhook.api.decode import Reader
from webhook.api.meta import GROUP, parse_time
from webhook.api.rules import decode_rule
from webhook.cluster.cache.discovery import Collection
from webhook.cluster.cache.listwatch import ObjectIdentity
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.errors import ClusterError, NotFound, Unavailable, is_admission_refusal
from webhook.cluster.client.list_pages import decoded, pages
from webhook.cluster.client.rest import Cluster, ThrottledCluster
from webhook.eviction.conditions import CANARY, CANARY_DRIVER, IN_TREE, is_canary
from webhook.eviction.modes import InTree
from webhook.flowcontrol.rates import Backoff

log = logging.getLogger(__name__)
WAIT_SECONDS: Final = 5.0
"""How long the in-tree controller has to write a status; it did within 2 s (seen on 1.37.0)."""
_POLL_SECONDS: Final = 0.2
REMOVAL_SECONDS: Final = 10.0
"""How long deleting the canary is retried."""
_RETRY_SECONDS: Final = 0.1
"""The first wait between two attempts to delete it; each further one doubles it."""
_LEFT_OVER: Final = timedelta(minutes=1)
"""A canary of this age is of no process that still probes."""
IN_TREE_MANAGER: Final = "device-taint-eviction-controller"
"""The field manager of its writes (E-38)."""


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 -- ages are told from the server's wall clock


async def find_in_tree(
    cluster: ThrottledCluster,
    rules: Collection,
    suffix: str,
    *,
    wait_seconds: float = WAIT_SECONDS,
    removal_seconds: float = REMOVAL_SECONDS,
    now: Callable[[], datetime] = _wall_clock,
) -> InTree:
    """Whether the in-tree controller is running. Creates and deletes a canary rule of effect None. Raises ClusterError.

    `suffix` ends the rule's name, so that several processes can probe at the same time.
    UNKNOWN where rules are not served, or have no status or effect None, or where admission refuses the canary, so that
    nothing could be observed. Canaries that a process left behind when it was killed are deleted too.
    """
    try:
        collection = await rules.path()
    except NotFound:
        return InTree.UNKNOWN
    found = await _probe(cluster, collection, suffix, wait_seconds, removal_seconds)
    await _remove_left_over(cluster, collection, now() - _LEFT_OVER)
    return found


async def _probe(
    cluster: ThrottledCluster, collection: str, suffix: str, wait_seconds: float, removal_seconds: float
) -> InTree:
    name = f"{CANARY}-{suffix}"
    path = f"{collection}/{name}"
    try:
        if not await _create(cluster, collection, name):
            return InTree.UNKNOWN
    except (Unavailable, asyncio.CancelledError):  # it may be there all the same
        await _remove(cluster, path, removal_seconds)
        raise
    try:
        return await _watch(cluster, path, time.monotonic() + wait_seconds)
    finally:
        await _remove(cluster, path, removal_seconds)


_INVALID: Final = frozenset({400, 422})


async def _create(cluster: ThrottledCluster, collection: str, name: str) -> bool:
    """Whether the server and its admission accept such a rule. Raises ClusterError, also without the permission."""
    rule = {
        "apiVersion": f"{GROUP}/{collection.split('/')[3]}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {"driver": CANARY_DRIVER},
            "taint": {"key": f"{CANARY_DRIVER}/canary", "effect": "None"},
        },
    }
    log.debug("canary", extra={"rule": name})
    try:
        await cluster.create(collection, rule)
    except ClusterError as error:
        if error.code not in _INVALID and not is_admission_refusal(error):
            raise
        log.info("canary rule refused", extra={"error": str(error)})
        return False
    return True


async def _watch(cluster: ThrottledCluster, path: str, until: float) -> InTree:
    while True:
        rule = decoded(await cluster.get(path), path)
        entries = rule["metadata"].get("managedFields") or ()
        writers = [each.get("manager") for each in entries if each.get("subresource") == "status"]
        conditions = (rule.get("status") or {}).get("conditions") or ()
        # Who may write rules can send any managedFields, and no condition; ours is written on no canary.
        if IN_TREE_MANAGER in writers and IN_TREE in [each["type"] for each in conditions]:
            return InTree.ACTIVE
        if time.monotonic() >= until:
            return InTree.ABSENT
        await asyncio.sleep(_POLL_SECONDS)


async def _remove_left_over(cluster: ThrottledCluster, collection: str, before: datetime) -> None:
    """Deletes canaries that were created before that time. A failure changes nothing else: the next start retries."""
    try:
        canaries = [
            rule["metadata"]
            async for page in pages(cluster, collection)
            for rule in page
            if is_canary(decode_rule(Reader.of(rule, [])))
        ]
    except ClusterError as error:
        log.info("rules not listed, so no canary of an earlier process is deleted", extra={"error": str(error)})
        return
    for meta in canaries:
        if (parse_time(meta.get("creationTimestamp") or "") or before) < before:
            fields = {"rule": meta["name"]}
            try:
                await cluster.delete(f"{collection}/{meta['name']}", {"preconditions": {"uid": meta["uid"]}})
            except ClusterError as error:
                log.info("canary rule of an earlier process not deleted", extra={**fields, "error": str(error)})
            else:
                log.info("canary rule of an earlier process deleted", extra=fields)


async def _remove(cluster: ThrottledCluster, path: str, seconds: float) -> None:
    """Returns once the canary is gone or `seconds` have passed, even if the task is cancelled meanwhile.

    If the controller is found, mode `replacement` ends, which cancels the task that is about to delete the canary.
    """
    cancelled: asyncio.CancelledError | None = None
    removal = asyncio.create_task(_try_to_remove(cluster, path, seconds))
    while not removal.done():
        try:
            await asyncio.wait([removal])
        except asyncio.CancelledError as error:
            cancelled = error
    await removal
    if cancelled is not None:
        raise cancelled


async def _try_to_remove(cluster: ThrottledCluster, path: str, seconds: float) -> None:
    problem = "no answer"
    backoff = Backoff(_RETRY_SECONDS, seconds, lambda: 0.0)  # one process asks, so there is nothing to spread
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await cluster.delete(path)
                except NotFound:
                    return
                except ClusterError as error:
                    problem = str(error)
                else:
                    return
                await asyncio.sleep(backoff.next_seconds())
    except TimeoutError:
        log.warning(
            "canary rule left behind, delete it manually", extra={"rule": path.rpartition("/")[2], "error": problem}
        )


class _ManagedFields(msgspec.Struct, frozen=True, gc=False):
    manager: str = ""
    subresource: str = ""
    time: str = ""


class _RuleMeta(ObjectIdentity, frozen=True, gc=False, rename="camel"):
    managed_fields: list[_ManagedFields] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: list[dict[str, Any]] | None = None


class _RuleWrites(msgspec.Struct, frozen=True, gc=False):
    """A rule's identity, the in-tree controller's condition, and the times of its writes to the status, as they say."""

    metadata: _RuleMeta
    status: _Status = _Status()
    times: frozenset[str] = frozenset()

    @property
    def meta(self) -> _RuleMeta:
        return self.metadata

    def to_value(self) -> _RuleWrites:
        entries, conditions = self.metadata.managed_fields or (), self.status.conditions or ()
        return _RuleWrites(
            msgspec.structs.replace(self.metadata, managed_fields=None),
            _Status([each for each in conditions if each.get("type") == IN_TREE]),
            frozenset(
                [each.time for each in entries if (each.manager, each.subresource) == (IN_TREE_MANAGER, "status")]
            ),
        )


class InTreeWrites:
    """Writes of the in-tree controller to the status of rules, kept by a watch.

    Who may write rules can send any managedFields, but changes no status with the same write.
    """

    def __init__(self, cluster: Cluster, collection: Collection, *, random: Callable[[], float]) -> None:
        self.reflector = Reflector[Any](cluster, collection, _RuleWrites, random=random, optional=True)
        self.reflector.subscribe(self._changed)
        self.seen = asyncio.Event()
        """Set once it has written a status after the first list, so it is running."""

    def _changed(self, old: _RuleWrites | None, new: _RuleWrites | None) -> None:
        if new is None or not self.reflector.synced.is_set():
            return
        before = old or _RuleWrites(new.metadata)
        if new.times - before.times and new.status.conditions and new.status != before.status:
            self.seen.set()
