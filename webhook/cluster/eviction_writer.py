"""Implements the eviction worker's port `ClusterWriter`: its requests about pods and rules, and what responses mean."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.api.meta import GROUP, format_time
from webhook.cluster.cache.listwatch import METADATA
from webhook.cluster.cache.wire import ObjectIdentity
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound, is_disruption_budget, is_webhook_refusal
from webhook.cluster.client.rest import path_of
from webhook.cluster.client.throttled import STRATEGIC
from webhook.cluster.events import EventType, ObjectReference
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef, WriteFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.throttled import ThrottledCluster
    from webhook.cluster.events import EventWriter
    from webhook.eviction.ports import Disruption, EvictionEvent


class _Meta(ObjectIdentity, frozen=True, gc=False):
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta


_POD: Final = msgspec.json.Decoder(_Pod)
_ANOTHER: Final = "UID in precondition"
"""In the text of a 409 if another object has the name; other conflicts are worth a retry
(k8s.io/apiserver pkg/storage/interfaces.go, Preconditions.Check)."""


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

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        """Reserves the one request of `evict`, or the two of `delete`; if `unsure`, it reads the pod first."""
        if unsure:
            path = path_of("", "v1", "pods", namespace=pod.namespace, name=pod.name)
            try:
                found = decode(_POD, await self._cluster.get(path, accept=METADATA))
            except NotFound:
                return False
            except (ClusterError, msgspec.DecodeError):
                pass  # the eviction itself will fail in the same way
            else:
                if found.metadata.uid != pod.uid or found.metadata.deletion_timestamp is not None:
                    return False
        await self._cluster.reserve(2 if delete else 1)
        return True

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        """Posts to the Eviction API, which honours disruption budgets and sets DisruptionTarget itself."""
        path = path_of("", "v1", "pods", namespace=pod.namespace, name=pod.name) + "/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": _delete_options(pod, grace_period_seconds),
        }
        try:
            await self._cluster.create(path, body, reserved=True)
        except ClusterError as error:
            return _outcome(error)
        return EvictionOutcome(EvictionResult.EVICTED)

    async def delete(self, pod: PodRef, grace_period_seconds: int | None, disruption: Disruption) -> EvictionOutcome:
        """Sets condition DisruptionTarget, then deletes the pod."""
        path = path_of("", "v1", "pods", namespace=pod.namespace, name=pod.name)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": disruption.reason,
            "message": disruption.message,
            "lastTransitionTime": format_time(self._now()),
        }
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        try:
            await self._cluster.patch(f"{path}/status", patch, content_type=STRATEGIC, reserved=True)
            await self._cluster.delete(path, _delete_options(pod, grace_period_seconds), reserved=True)
        except ClusterError as error:
            return _outcome(error)
        return EvictionOutcome(EvictionResult.EVICTED)

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        """Server-side apply to the status; conditions of ours that are not among these are removed."""
        try:
            path = await self._rules.path()
            obj = {
                "apiVersion": f"{GROUP}/{path.split('/')[3]}",
                "kind": "DeviceTaintRule",
                "metadata": {"name": rule.meta.name, "uid": rule.meta.uid},
                "status": {"conditions": [_condition(condition) for condition in conditions]},
            }
            await self._cluster.apply(f"{path}/{rule.meta.name}/status", obj)
        except NotFound:
            return None  # the rule is gone; the watch will report it
        except ClusterError as error:
            gone = isinstance(error, Conflict) and _ANOTHER in str(error)
            return None if gone else WriteFailure(str(error))
        return None

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """A patch with the resource version that was read."""
        identity = {"uid": rule.meta.uid, "resourceVersion": rule.meta.resource_version}
        patch = {"metadata": identity, "spec": {"taint": {"effect": "None"}}}
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
        else:
            regarding = ObjectReference(f"{GROUP}/v1", "DeviceTaintRule", "", about.meta.name, about.meta.uid)
        kind = EventType.WARNING if event.warning else EventType.NORMAL
        await self._events.write(regarding, kind, reason=event.reason, action=event.action, note=event.text)


def _delete_options(pod: PodRef, grace_period_seconds: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    return options


def _outcome(error: ClusterError) -> EvictionOutcome:
    """What a failed request means for the pod."""
    gone = isinstance(error, NotFound) or (isinstance(error, Conflict) and _ANOTHER in str(error))
    if gone and not is_webhook_refusal(error):
        return EvictionOutcome(EvictionResult.GONE)
    if is_disruption_budget(error):
        return EvictionOutcome(EvictionResult.BLOCKED, error.server_message, error.retry_after_seconds)
    # Without a response, or with one from a proxy, the request may have taken effect.
    unsure = not error.code or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return EvictionOutcome(EvictionResult.FAILED, str(error), error.retry_after_seconds, unsure)


def _condition(condition: Condition) -> dict[str, Any]:
    assert condition.last_transition_time is not None
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": format_time(condition.last_transition_time),
    }
