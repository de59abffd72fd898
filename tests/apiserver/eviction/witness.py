"""What an evictor did, as the API server has it on record."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.controlplane.plane import AUDIT_EVENT

Json = dict[str, Any]

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["list", "watch"]},
        # with their bodies: which pod exactly was meant, and what was said of it
        {"level": "Request", "resources": [{"group": "", "resources": ["pods", "pods/status", "pods/eviction"]}]},
        {
            "level": "Request",
            "resources": [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io", "resources": ["events"]}],
        },
        {"level": "None"},
    ],
}


class Deletion(NamedTuple):
    """A DELETE of a pod, or a POST of an eviction."""

    pod: tuple[str, str]
    """Namespace and name."""
    at: datetime
    code: int
    options: Json
    by_eviction: bool

    @property
    def uid(self) -> str:
        """Of the pod that was meant; empty if only its name was given."""
        uid: str = self.options.get("preconditions", {}).get("uid", "")
        return uid

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.options


class Mark(NamedTuple):
    """Pod condition DisruptionTarget, as it was written."""

    at: datetime
    status: str
    reason: str
    message: str


class Told(NamedTuple):
    """An Event about a pod or a PodGroup."""

    uid: str
    type: str
    reason: str
    text: str


class Witness:
    """Reads the audit log as it grows, for one user; threads may share it."""

    def __init__(self, audit_log: Path, user: str) -> None:
        self._log = audit_log
        self._user = user
        self._offset = 0
        self._lock = threading.Lock()
        self._deletions: list[Deletion] = []
        self._marks: dict[str, list[Mark]] = {}
        self._told: list[Told] = []
        self._requests: dict[str, int] = {}

    def deletions(self) -> list[Deletion]:
        """All that it has tried, in that order, without dry runs."""
        return [each for each in self.attempts() if not each.dry_run]

    def attempts(self) -> list[Deletion]:
        """Likewise, dry runs included."""
        with self._lock:
            self._read()
            return list(self._deletions)

    def evicted(self) -> Mapping[str, Deletion]:
        """The first deletion of each pod that was granted, by uid."""
        found: dict[str, Deletion] = {}
        for each in self.deletions():
            if each.code < 300:
                found.setdefault(each.uid, each)
        return found

    def marks(self, uid: str) -> list[Mark]:
        """What was written into the conditions of a pod."""
        with self._lock:
            self._read()
            return list(self._marks.get(uid, ()))

    def told(self) -> set[Told]:
        """Its Events about pods and PodGroups."""
        with self._lock:
            self._read()
            return set(self._told)

    def requests(self) -> dict[str, int]:
        """How many requests of each sort were made: `verb resource`."""
        with self._lock:
            self._read()
            return dict(self._requests)

    def _read(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                event = json.loads(line[line.rindex(AUDIT_EVENT) :])
                if event["user"]["username"] == self._user:
                    self._note(event)

    def _note(self, event: Json) -> None:
        about, body = event["objectRef"], event.get("requestObject") or {}
        what = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
        sort = f"{event['verb']} {what}"
        self._requests[sort] = self._requests.get(sort, 0) + 1
        code, at = event["responseStatus"]["code"], datetime.fromisoformat(event["requestReceivedTimestamp"])
        if sort in ("delete pods", "create pods/eviction"):
            by_eviction = sort != "delete pods"
            options = body.get("deleteOptions", {}) if by_eviction else body
            pod = about["namespace"], about["name"]
            self._deletions.append(Deletion(pod, at, code, options, by_eviction))
        elif code >= 300:
            return
        elif sort == "patch pods/status":
            for condition in body.get("status", {}).get("conditions", ()):
                if condition["type"] == "DisruptionTarget":
                    mark = Mark(at, condition["status"], condition["reason"], condition["message"])
                    self._marks.setdefault(body["metadata"]["uid"], []).append(mark)
        elif what == "events":
            regarding = body.get("regarding") or body.get("involvedObject") or {}
            if regarding.get("kind") in {"Pod", "PodGroup"}:
                text = body.get("note") or body.get("message", "")
                self._told.append(Told(regarding["uid"], body["type"], body["reason"], text))
