"""What the in-tree device-taint-eviction-controller did and said, as the API server has it on record."""

from __future__ import annotations

import json
import re
import threading
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.controlplane.client import Client

Json = dict[str, Any]

CONTROLLER: Final = "device-taint-eviction-controller"
IMPACT: Final = {
    "devicetaintrules": "rules.validate.devicetaint.io/impact",
    "resourceslices": "slices.validate.devicetaint.io/impact",
}
"""The audit annotation, with the name of the webhook's entry before it."""
CONDITION: Final = "EvictionInProgress"
AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # with its body, in which stands which pod exactly was meant
        {"level": "Request", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
        # for our annotations
        {
            "level": "Metadata",
            "resources": [{"group": "resource.k8s.io", "resources": ["devicetaintrules", "resourceslices"]}],
        },
        {"level": "None"},
    ],
}
_NUMBER: Final = re.compile(r"(\w+)=(\d+)(?= |$)")
_NO_EFFECT: Final = re.compile(
    r"(\d+) published devices? selected\. (\d+) allocated devices? selected\. "
    r"(\d+) pods? would be evicted in (\d+) (?:namespace|different namespaces) if the effect was NoExecute\. "
)


class Figures(NamedTuple):
    """The four numbers of a rule without effect (E-40)."""

    published: int
    allocated: int
    pods: int
    namespaces: int


class Eviction(NamedTuple):
    uid: str
    pod: str
    """namespace/name"""
    at: datetime


class Noted(NamedTuple):
    """The audit annotation about a rule's impact."""

    text: str
    numbers: dict[str, int]


class Witness:
    """Reads the audit log as it grows; threads may share it."""

    def __init__(self, audit_log: Path) -> None:
        self._log = audit_log
        self._offset = 0
        self._lock = threading.Lock()
        self._evictions: list[Eviction] = []
        self._noted: dict[tuple[str, bool], Noted] = {}

    def evictions(self) -> list[Eviction]:
        """All pods that the controller has deleted so far, in that order."""
        with self._lock:
            self._read()
            return list(self._evictions)

    def noted(self, name: str, *, dry_run: bool = False) -> Noted:
        """What our webhook noted when the rule or slice of that name was last written, or tried; empty if nothing."""
        with self._lock:
            self._read()
            return self._noted.get((name, dry_run), Noted("", {}))

    def _read(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._note(json.loads(line))

    def _note(self, event: Json) -> None:
        if event["responseStatus"]["code"] >= 300:
            return
        about = event["objectRef"]
        if about["resource"] in IMPACT:
            if event["verb"] in ("create", "patch", "update") and "subresource" not in about:
                text = event.get("annotations", {}).get(IMPACT[about["resource"]], "")
                numbers = {name: int(number) for name, number in _NUMBER.findall(text)}
                self._noted[about.get("name", ""), "dryRun=" in event["requestURI"]] = Noted(text, numbers)
        elif event["user"]["username"].endswith(f":{CONTROLLER}"):
            uid = event["requestObject"]["preconditions"]["uid"]
            at = datetime.fromisoformat(event["requestReceivedTimestamp"])
            self._evictions.append(Eviction(uid, f"{about['namespace']}/{about['name']}", at))


def condition(client: Client, rule_url: str) -> Json:
    """What the controller says of a rule as it is written now; empty if it has not said anything yet."""
    rule = client.get(rule_url).object
    found: Json = next((c for c in rule.get("status", {}).get("conditions", ()) if c["type"] == CONDITION), {})
    return found if found.get("observedGeneration") == rule["metadata"]["generation"] else {}


def figures(text: str) -> Figures:
    """The numbers in the message of a rule without effect."""
    match = _NO_EFFECT.match(text)
    assert match, text
    return Figures(*map(int, match.groups()))


def pending(later: int, namespaces: int, evicted: int) -> str:
    """What the controller says of a NoExecute rule with so many pods still to go and so many gone (E-39, E-42)."""
    going = "1 pod needs" if later == 1 else f"{later} pods need"
    places = "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"
    gone = "1 pod" if evicted == 1 else f"{evicted} pods"
    parts = [f"{going} to be evicted in {places}."] if later else []
    return " ".join([*parts, *([f"{gone} evicted since starting the controller."] if evicted else [])])
