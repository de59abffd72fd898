"""What the status of objects says to people, and Events about them.

An EventWriter writes an Event and waits for it, an EventRecorder takes one and returns at once. An Event is a courtesy:
a failure to write one is logged and never raised.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from webhook.api.meta import format_time
from webhook.api.rules import Condition
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.rest import Cluster, path_of
from webhook.flowcontrol.loop import WriteBehind

log = logging.getLogger(__name__)

CONTROLLER: Final = "devicetaint.io/device-taint-webhook"
# https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
_NOTE_BYTES_MOST: Final = 1024
_WORD_MOST: Final = 128
_NAME_MOST: Final = 253
_WAITING_MOST: Final = 16
"""Events of a recorder that may wait; more than that would be about the same trouble."""


class ObjectReference(NamedTuple):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    """Empty for what has none; its Events are in `default` then."""
    name: str
    uid: str = ""


class EventType(StrEnum):
    """The two that there are."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventWriter:
    """Creates Events (events.k8s.io/v1) with this process as their reporter."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        instance: str,
        now: Callable[[], datetime],
        random_hex: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        """`instance` names the replica, such as the pod's name; `now` is wall-clock time in UTC."""
        self._cluster = cluster
        self._instance = instance[:_WORD_MOST] or "unknown"
        self._now = now
        self._random_hex = random_hex

    async def write(
        self, regarding: ObjectReference, event_type: EventType, *, reason: str, action: str, note: str
    ) -> None:
        """`reason` is why, in CamelCase; `action` is what was done; `note` is for people."""
        namespace = regarding.namespace or "default"
        suffix = f".{self._random_hex(8)}"
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "namespace": namespace,
                "name": regarding.name[: _NAME_MOST - len(suffix)].rstrip(".-") + suffix,
            },
            "eventTime": self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": event_type.value,
            "reason": reason[:_WORD_MOST],
            "action": action[:_WORD_MOST],
            "note": truncate_utf8(note, _NOTE_BYTES_MOST),
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": regarding.name,
                **({"namespace": regarding.namespace} if regarding.namespace else {}),
                **({"uid": regarding.uid} if regarding.uid else {}),
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }
        try:
            await self._cluster.create(path_of("events.k8s.io", "v1", "events", namespace=namespace), event)
        except ClusterError as error:
            log.warning(
                "event not written",
                extra={
                    "object": f"{regarding.kind} {namespace}/{regarding.name}",
                    "reason": reason,
                    "error": str(error),
                },
            )


class EventRecorder:
    """Records warnings about one object in the background; beyond a few that wait, they are dropped."""

    def __init__(self, writer: EventWriter, regarding: ObjectReference) -> None:
        self._writer = writer
        self._regarding = regarding
        self._buffer: WriteBehind[Callable[[], Awaitable[None]]] = WriteBehind(
            lambda write: write(), most=_WAITING_MOST
        )

    def warn(self, reason: str, action: str, note: str) -> None:
        """An Event of type Warning; the arguments are those of `EventWriter.write`."""
        write = partial(self._writer.write, self._regarding, EventType.WARNING)
        self._buffer.add(partial(write, reason=reason, action=action, note=note))

    async def run(self) -> NoReturn:
        """Writes them one after the other; returns only when cancelled."""
        await self._buffer.run()


def truncate_utf8(text: str, most_bytes: int) -> str:
    """The text, or as much as fits with three dots; counted in bytes of UTF-8, as the API server counts."""
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return data.decode()
    return data[: most_bytes - 3].decode(errors="ignore") + "..."


def condition_object(condition: Condition) -> dict[str, Any]:
    """A condition of a status as it is applied."""
    assert condition.last_transition_time is not None
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": format_time(condition.last_transition_time),
    }
