"""Implements the eviction worker's port `ClusterWriter`: its requests about pods and rules, and what responses mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from webhook.api.meta import GROUP, format_time
from webhook.api.pods import HOLD, POD_GROUP_VERSIONS, PodGroup
from webhook.api.rules import EVICT, SOFTENED_FROM, Condition, DeviceTaintRule
from webhook.cluster.cache.discovery import Collection
from webhook.cluster.cache.listwatch import METADATA, ObjectIdentity
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import (
    ClusterError,
    Conflict,
    NotFound,
    NotSent,
    is_budget_pending,
    is_disruption_budget,
    is_webhook_refusal,
)
from webhook.cluster.client.rest import STRATEGIC, ThrottledCluster, path_of
from webhook.cluster.events import EventType, EventWriter, ObjectReference, condition_object
from webhook.eviction.ports import Disruption, EvictionEvent, EvictionOutcome, EvictionResult, PodRef, WriteFailure


class _Meta(ObjectIdentity, frozen=True, gc=False):
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct, frozen=True):
    """A pod, or its metadata alone."""

    metadata: _Meta

    @property
    def terminating(self) -> bool:
        """Whether it was deleted, and has not ended yet."""
        return self.metadata.deletion_timestamp is not None

    @property
    def held(self) -> bool:
        """Whether it is on hold."""
        return HOLD in (self.metadata.annotations or {})


class _Grant(msgspec.Struct, frozen=True):
    """As far as it is read: a meta/v1 Status, or the object that was deleted."""

    kind: str = ""
    status: msgspec.Raw = msgspec.Raw(b"")


_POD: Final = msgspec.json.Decoder(_Pod)
_GRANT: Final = msgspec.json.Decoder(_Grant)
_POD_GROUPS: Final = f"scheduling.k8s.io/{POD_GROUP_VERSIONS[0]}"
_ANOTHER: Final = ("UID in precondition", "does not match the UID in record")
"""In the text of a 409 if another object has the name; other conflicts are worth a retry.

The first is the store's (k8s.io/apiserver pkg/storage/interfaces.go, Preconditions.Check). The second is that of a
graceful deletion (pkg/registry/rest/delete.go) and of the Eviction API, which has taken one disruption from the budget
by then (eviction.go, addConditionAndDeletePod).
"""
_VERSION: Final = ("ResourceVersion in", "the object has been modified")
"""In the text of a 409 if the object has another version: in preconditions of deletions, and in a patch."""
_BUDGETS: Final = 'poddisruptionbudgets.policy "'
"""In the text of a 404 or 409 about the budget, which the Eviction API writes to, and not about the pod."""
_TARGETS_MOST: Final = 1024
"""How many times of DisruptionTarget are remembered; a pod whose time is forgotten gets a new one."""
_EXCERPT_BYTES: Final = 200
_HELD: Final = EvictionOutcome(EvictionResult.FAILED, "it is on hold, which the watch has not shown yet", changed=True)


class EvictionWriter:
    """Writes to pods and rules, always with a uid precondition: another object of the same name is left alone."""

    def __init__(
        self, cluster: ThrottledCluster, rules: Collection, events: EventWriter, now: Callable[[], datetime]
    ) -> None:
        """`rules` finds the served version of DeviceTaintRules."""
        self._cluster = cluster
        self._rules = rules
        self._events = events
        self._now = now
        self._targets: dict[tuple[str, Disruption], str] = {}
        """When DisruptionTarget was first set, by the uid of the pod; until the pod is deleted."""

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        """Reserves the one request of `evict`, or the two of `delete`; if `unsure`, it reads the pod first."""
        found = await self.read(pod) if unsure else None
        if found is not None and found.gone:
            return False  # after other errors the eviction itself will fail in the same way
        await self._cluster.reserve(2 if delete else 1)
        return True

    async def read(self, pod: PodRef) -> EvictionOutcome | None:
        """A GET of the metadata alone; it waits for the client's rate limit itself."""
        try:
            found = decode(_POD, await self._cluster.get(_path_of(pod), accept=METADATA))
        except ClusterError as error:
            return _outcome(error)._replace(unsure=False)  # it evicts no pod
        except msgspec.DecodeError:
            return EvictionOutcome(EvictionResult.FAILED, "the pod's metadata are not an answer of an API server")
        if found.metadata.uid != pod.uid or found.terminating:
            return EvictionOutcome(EvictionResult.GONE)
        return _HELD if found.held and not pod.held else None

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        """Posts to the Eviction API, which honours disruption budgets and sets DisruptionTarget itself."""
        return await self._evict(pod, _delete_options(pod, grace_period_seconds, pod.version), reserved=True)

    async def may_evict(self, pod: PodRef) -> EvictionOutcome:
        """Posts a dry run to the Eviction API; it waits for the client's rate limit itself."""
        return await self._evict(pod, {**_delete_options(pod, None), "dryRun": ["All"]}, reserved=False)

    async def _evict(self, pod: PodRef, delete_options: Mapping[str, Any], *, reserved: bool) -> EvictionOutcome:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": delete_options,
        }
        try:
            path = f"{_path_of(pod)}/eviction"
            answer = await self._cluster.create(path, body, reserved=reserved, wanted=pod.wanted)
        except ClusterError as error:
            return _outcome(error)
        return _granted(answer)

    async def delete(self, pod: PodRef, grace_period_seconds: int | None, disruption: Disruption) -> EvictionOutcome:
        """Sets condition DisruptionTarget, then deletes the pod. A retry sends the same condition, time included.

        The PATCH names the version that was seen, and the DELETE that of the pod with the condition. So both are
        refused if anything has happened to the pod since, such as a hold that the watch does not show yet; unless the
        pod is `live`.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": disruption.reason,
            "message": disruption.message,
            "lastTransitionTime": self._targeted_at(pod, disruption),
        }
        patch = {"metadata": _identity(pod, pod.version), "status": {"conditions": [condition]}}
        try:
            status = f"{_path_of(pod)}/status"
            answer = await self._cluster.patch(status, patch, content_type=STRATEGIC, reserved=True, wanted=pod.wanted)
            outcome = await self._delete_marked(pod, answer, grace_period_seconds)
        except ClusterError as error:
            outcome = _outcome(error)
        if outcome.result in (EvictionResult.EVICTED, EvictionResult.GONE):
            self._targets.pop((pod.uid, disruption), None)
        return outcome

    async def _delete_marked(self, pod: PodRef, answer: bytes, grace_period_seconds: int | None) -> EvictionOutcome:
        """Deletes the pod that is the response to the PATCH, unless it is terminating. Raises ClusterError."""
        try:
            marked = decode(_POD, answer)
        except msgspec.DecodeError:
            return _not_understood(answer)
        if marked.metadata.uid != pod.uid:  # the PATCH names it, so this is not an API server's response
            return _not_understood(answer)
        if marked.terminating:
            return EvictionOutcome(EvictionResult.GONE)
        if marked.held and not pod.held:
            return _HELD
        options = _delete_options(pod, grace_period_seconds, "" if pod.live else marked.metadata.resource_version)
        return _granted(await self._cluster.delete(_path_of(pod), options, reserved=True, wanted=pod.wanted))

    def _targeted_at(self, pod: PodRef, disruption: Disruption) -> str:
        """The condition's time: when its status became True, which is not at each attempt to delete the pod."""
        key = (pod.uid, disruption)
        if key not in self._targets:
            if len(self._targets) >= _TARGETS_MOST:
                del self._targets[next(iter(self._targets))]
            self._targets[key] = format_time(self._now())
        return self._targets[key]

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        """Server-side apply to the status; conditions of ours that are not among these are removed."""
        try:
            path = await self._rules.path()
            obj = {
                "apiVersion": f"{GROUP}/{path.split('/')[3]}",
                "kind": "DeviceTaintRule",
                "metadata": {"name": rule.meta.name, "uid": rule.meta.uid},
                "status": {"conditions": [condition_object(condition) for condition in conditions]},
            }
            await self._cluster.apply(f"{path}/{rule.meta.name}/status", obj)
        except NotFound:
            return None  # the rule is gone, or rules are not served any more; the watch will report it
        except ClusterError as error:
            return None if _is_gone(error) else WriteFailure(str(error))
        return None

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """A patch with the resource version that was read; policies deny `/evict` to others than its author."""
        identity = {"uid": rule.meta.uid, "resourceVersion": rule.meta.resource_version}
        meta = {**identity, "annotations": {EVICT: None, SOFTENED_FROM: None}}
        patch = {"metadata": meta, "spec": {"taint": {"effect": "None"}}}
        try:
            await self._cluster.patch(f"{await self._rules.path()}/{rule.meta.name}", patch)
        except ClusterError as error:
            return WriteFailure(str(error))
        return None

    async def delete_rule(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """A deletion with the resource version that was read."""
        identity = {"uid": rule.meta.uid, "resourceVersion": rule.meta.resource_version}
        try:
            await self._cluster.delete(f"{await self._rules.path()}/{rule.meta.name}", {"preconditions": identity})
        except NotFound:
            return None
        except ClusterError as error:
            return WriteFailure(str(error))
        return None

    async def write_event(self, event: EvictionEvent) -> None:
        """Writes an Event; the EventWriter logs a failure."""
        about = event.about
        if isinstance(about, PodRef):
            regarding = ObjectReference("v1", "Pod", about.namespace, about.name, about.uid)
        elif isinstance(about, PodGroup):
            meta = about.meta
            regarding = ObjectReference(_POD_GROUPS, "PodGroup", meta.namespace, meta.name, meta.uid)
        else:
            regarding = ObjectReference(f"{GROUP}/v1", "DeviceTaintRule", "", about.meta.name, about.meta.uid)
        kind = EventType.WARNING if event.warning else EventType.NORMAL
        await self._events.write(regarding, kind, reason=event.reason, action=event.action, note=event.text)


def _path_of(pod: PodRef) -> str:
    return path_of("", "v1", "pods", namespace=pod.namespace, name=pod.name)


def _identity(pod: PodRef, version: str) -> dict[str, str]:
    """The very pod, in one version if any."""
    return {"uid": pod.uid, "resourceVersion": version} if version else {"uid": pod.uid}


def _delete_options(pod: PodRef, grace_period_seconds: int | None, version: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": _identity(pod, version)}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    return options


def _is_gone(error: ClusterError) -> bool:
    """Whether the API server itself says that the object is gone, or that another one has its name."""
    return _says(error, NotFound, "") or _says(error, Conflict, *_ANOTHER)


def _says(error: ClusterError, kind: type[ClusterError], *texts: str) -> bool:
    """Whether the API server itself says one of these in such an error, and not about a budget."""
    foreign = not error.has_status or is_webhook_refusal(error) or _BUDGETS in error.server_message
    return isinstance(error, kind) and not foreign and any(text in error.server_message for text in texts)


def _granted(answer: bytes) -> EvictionOutcome:
    """A 2xx counts if the API server wrote it: a Status of success, or the pod as it is while it terminates."""
    try:
        said = decode(_GRANT, answer)
    except msgspec.DecodeError:
        said = _Grant()
    if said.kind == "Pod" or (said.kind, bytes(said.status)) == ("Status", b'"Success"'):
        return EvictionOutcome(EvictionResult.EVICTED)
    return _not_understood(answer)


def _not_understood(answer: bytes) -> EvictionOutcome:
    text = f"not an answer of an API server: {answer[:_EXCERPT_BYTES]!r}"
    return EvictionOutcome(EvictionResult.FAILED, text, unsure=True)


def _outcome(error: ClusterError) -> EvictionOutcome:
    """What a failed request means for the pod."""
    if _is_gone(error):
        return EvictionOutcome(EvictionResult.GONE)
    if isinstance(error, NotSent):
        return EvictionOutcome(EvictionResult.FAILED, str(error), withdrawn=True)
    if _says(error, Conflict, *_VERSION):
        return EvictionOutcome(EvictionResult.FAILED, str(error), changed=True)
    if is_disruption_budget(error):
        pending = is_budget_pending(error)
        seconds = error.retry_after_seconds
        return EvictionOutcome(EvictionResult.BLOCKED, error.server_message, seconds, budget_pending=pending)
    # Without a response, or with one from a proxy, the request may have taken effect. A webhook refuses it before.
    from_proxy = error.code == HTTPStatus.NOT_FOUND and not error.has_status
    failed = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_webhook_refusal(error)
    unsure = not error.code or failed or from_proxy
    return EvictionOutcome(EvictionResult.FAILED, str(error), error.retry_after_seconds, unsure)
