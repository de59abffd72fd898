"""What the controller of patches writes: rules, the status of patches, Events about them, and touches of slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote, urlencode

import msgspec

from webhook.api.meta import GROUP, OWN_GROUP, NamespacedName, format_time
from webhook.api.names import PATCHER
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, DeviceSelector
from webhook.cluster.cache.discovery import Collection as ServedAt
from webhook.cluster.cache.known_patches import PATCHES, OwnedRuleWire
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError, NotFound, Refused, is_admission_refusal
from webhook.cluster.client.rest import Cluster, ThrottledCluster, path_of
from webhook.cluster.events import EventType, EventWriter, ObjectReference, condition_object
from webhook.flowcontrol.workqueue import WorkQueue
from webhook.patches.reactions import ReactionWrite
from webhook.patches.stored import (
    PATCH_API_VERSION,
    PATCH_KIND,
    PATCH_VERSION,
    RULE_KIND,
    PatchStatus,
    RuleApply,
    RuleOwner,
    StoredPatch,
    StoredRule,
)

_RULE: Final = msgspec.json.Decoder(OwnedRuleWire)
_NOT_SET: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
FIRST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 300.0


class WriteAnswer(NamedTuple):
    """What became of a write: the rule as it is stored, or why it is not; all empty for what is gone."""

    stored: StoredRule | None = None
    refused: str = ""
    """The message of a webhook, of a policy or of the server: the same again would be refused again."""
    failed: str = ""
    """An error that may pass."""


class PatchWriter:
    """Writes as field manager PATCHER."""

    def __init__(
        self, cluster: ThrottledCluster, rules: ServedAt, events: EventWriter, config_map: NamespacedName | None
    ) -> None:
        """`rules` finds the served version of DeviceTaintRules.

        `config_map` holds the policy; None: it is in a file, and there is nothing that Events could be about.
        """
        self._cluster = cluster
        self._rules = rules
        self._events = events
        self._config_map = config_map

    async def apply_rule(self, write: RuleApply) -> WriteAnswer:
        """Creates or changes a rule."""
        try:
            collection = await self._rules.path()
            rule = _rule(write, collection.split("/")[3])
            path = f"{collection}/{quote(write.name, safe='')}"
            if write.surplus or write.foreign:
                query = urlencode({"fieldManager": PATCHER})
                answer = await self._cluster.patch(f"{path}?{query}", _replacement(write, rule))
            else:
                answer = await self._cluster.apply(path, rule, manager=PATCHER)
            return WriteAnswer(decode(_RULE, answer).to_value())
        except NotFound as error:
            self._rules.forget()
            return WriteAnswer(failed=str(error))
        except ClusterError as error:
            return _answer(error)
        except msgspec.DecodeError as error:
            return WriteAnswer(failed=f"the answer to writing rule {write.name} cannot be read: {error}")

    async def delete_rule(self, stored: StoredRule) -> WriteAnswer:
        """Deletes the very rule that was read, in whatever version: its status changes all the time.

        One with finalizers is left as it is until these are gone; the answer has it.
        """
        meta = stored.meta
        try:
            path = f"{await self._rules.path()}/{quote(meta.name, safe='')}"
            left = decode(_RULE, await self._cluster.delete(path, {"preconditions": {"uid": meta.uid}})).to_value()
        except ClusterError as error:
            return WriteAnswer() if isinstance(error, NotFound) and error.has_status else _answer(error)
        except msgspec.DecodeError:
            return WriteAnswer()
        return WriteAnswer(left if left.rule.deleting else None)  # a Status is decoded, too

    async def write_status(self, stored: StoredPatch, status: PatchStatus) -> WriteAnswer:
        """Server-side apply to the status of a patch; one that is gone is no error."""
        meta = stored.meta
        obj = {
            "apiVersion": PATCH_API_VERSION,
            "kind": PATCH_KIND,
            "metadata": {"name": meta.name, "uid": meta.uid},
            "status": {
                "observedGeneration": status.observed_generation,
                "selectedDevices": status.selected_devices,
                "patchedDevices": status.patched_devices,
                "taintedDevices": status.tainted_devices,
                "rules": status.rules,
                "conditions": [condition_object(each) for each in status.conditions],
            },
        }
        path = path_of(OWN_GROUP, PATCH_VERSION, PATCHES, name=meta.name)
        try:
            await self._cluster.apply(f"{path}/status", obj, manager=PATCHER)
        except ClusterError as error:
            return WriteAnswer() if error.code in _NOT_SET else _answer(error)
        return WriteAnswer()

    async def warn(self, owner: RuleOwner, reason: str, action: str, note: str) -> None:
        """An Event of type Warning about a patch or a rule; the EventWriter logs a failure."""
        version = PATCH_API_VERSION if owner.kind == PATCH_KIND else f"{GROUP}/v1"
        regarding = ObjectReference(version, owner.kind, "", owner.name, owner.uid)
        await self._events.write(regarding, EventType.WARNING, reason=reason, action=action, note=note)

    # --- reactions of the policy -----------------------------------------------------------------

    async def write_reaction(self, write: ReactionWrite) -> WriteAnswer:
        """Creates or changes the rule of a device."""
        rule = write.rule
        apply = RuleApply(
            *(None, rule.name, rule.selector, write.taint, rule.annotations),
            *(write.creates, write.surplus, write.foreign, write.retired),
        )
        return await self.apply_rule(apply)

    async def report(self, reason: str, note: str, *, warns: bool) -> None:
        """An Event about the ConfigMap; the EventWriter logs a failure."""
        if self._config_map is None:
            return
        regarding = ObjectReference("v1", "ConfigMap", self._config_map.namespace, self._config_map.name)
        event_type = EventType.WARNING if warns else EventType.NORMAL
        await self._events.write(regarding, event_type, reason=reason, action="React", note=note)


def _answer(error: ClusterError) -> WriteAnswer:
    if isinstance(error, Refused) or is_admission_refusal(error):
        return WriteAnswer(refused=error.server_message or str(error))
    return WriteAnswer(failed=str(error))


def _rule(write: RuleApply, version: str) -> dict[str, Any]:
    """The rule as it is applied: what is None in the selector is not there."""
    owner, taint = write.owner, write.taint
    assert taint.time_added is not None
    metadata: dict[str, Any] = {
        "name": write.name,
        "labels": dict(write.labels),
        "annotations": dict(write.annotations),
    }
    if owner is not None:
        reference = {
            "apiVersion": PATCH_API_VERSION if owner.kind == PATCH_KIND else f"{GROUP}/{version}",
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
        metadata["ownerReferences"] = [reference]
    value = {"value": taint.value} if taint.value else {}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": RULE_KIND,
        "metadata": metadata,
        "spec": {
            "deviceSelector": {name: text for name, text in _names(write.selector).items() if text is not None},
            "taint": {"key": taint.key, **value, "effect": taint.effect, "timeAdded": format_time(taint.time_added)},
        },
    }


def _replacement(write: RuleApply, rule: dict[str, Any]) -> dict[str, Any]:
    """A rule that is applied, as a merge patch: null for all that it should not have."""
    metadata, retired = rule["metadata"], {"deviceClassName": None, "selectors": None}
    labels = () if write.owner is None else (PATCH_LABEL, HARDWARE_LABEL)
    return {
        "metadata": {
            "labels": {**dict.fromkeys(labels), **metadata["labels"]},
            "annotations": {**dict.fromkeys((*write.own_annotations, *write.retired)), **metadata["annotations"]},
            "finalizers": None,
            "ownerReferences": metadata.get("ownerReferences"),
        },
        "spec": {
            "deviceSelector": {**retired, **_names(write.selector)},
            "taint": {"value": None, **rule["spec"]["taint"]},
        },
    }


def _names(selector: DeviceSelector) -> Mapping[str, str | None]:
    return {"driver": selector.driver, "pool": selector.pool, "device": selector.device}


class SliceToucher:
    """Touches slices until they are as they should be: again and again, at growing intervals.

    A touch does not help while no replica of the webhook answers, or while the one that does has not heard of a patch.
    """

    def __init__(
        self,
        cluster: Cluster,
        slices: ServedAt,
        *,
        random: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        first_seconds: float = FIRST_SECONDS,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        """`slices` finds the served version; `random` returns numbers in [0, 1), `clock` seconds that only go forward.

        After a touch that did not help the next one waits for `first_seconds`, and twice as long each time.
        """
        self._cluster = cluster
        self._slices = slices
        self._queue: WorkQueue[str] = WorkQueue(
            clock=clock, random=random, first_seconds=first_seconds, most_seconds=most_seconds
        )
        self._wanted: frozenset[str] = frozenset()
        self.problems: dict[str, str] = {}
        """Why a touch failed, by slice; without those that are as they should be."""

    def want(self, names: Collection[str]) -> None:
        """All slices that are to be touched now, by name; call it whenever slices or patches have changed."""
        wanted = frozenset(names)
        for name in self._wanted - wanted:
            self._queue.discard(name)
            self.problems.pop(name, None)
        for name in sorted(wanted - self._wanted):
            self._queue.add(name)
        self._wanted = wanted

    async def run(self) -> NoReturn:
        """Touches what is wanted, one after the other; returns only when cancelled."""
        while True:
            name = await self._queue.get()
            try:
                if name in self._wanted:
                    await self._touch(name)
            finally:
                self._queue.done(name)

    async def _touch(self, name: str) -> None:
        seconds = 0.0
        try:
            # No resourceVersion: the API server applies it to whatever is stored, and repeats that on a conflict.
            await self._cluster.patch(f"{await self._slices.path()}/{name}", {})
            self.problems.pop(name, None)
        except NotFound as error:
            self._slices.forget()  # the slice is gone, which a watch will tell soon, or the version
            self.problems[name] = str(error)
        except ClusterError as error:
            self.problems[name] = str(error)
            seconds = min(error.retry_after_seconds, MOST_SECONDS)
        if name in self._wanted:
            self._queue.add_rate_limited(name, seconds)
