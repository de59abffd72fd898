"""What an evictor did, from the API server's audit log: nothing here is told by an evictor itself."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.gobinaries import BenchmarkError
from tests.controlplane.plane import ADMIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "resources": [{"group": "resource.k8s.io", "resources": ["devicetaintrules"]}]},
        {"level": "None", "users": [ADMIN]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Metadata"},
    ],
}
"""What the evictors do, and when the rule was created; not the thousands of requests that made the pods."""


class Seen(NamedTuple):
    """What came of one rule: seconds from its creation, and requests from then on by what they were."""

    first_seconds: float
    """Until the first deletion was asked for."""
    all_seconds: float
    """Until the last one was granted."""
    requests: Mapping[str, int]
    """`verb resource`."""

    def calls_a_pod(self, pods: int) -> float:
        """Of every sort, with those that tell of it."""
        return sum(self.requests.values()) / pods


def seen(log: Path, user: str, pods: int) -> Seen:
    """Of one evictor. Raises: BenchmarkError if not all of the pods were deleted, or one of them twice."""
    created: datetime | None = None
    asked: list[datetime] = []
    granted: dict[str, datetime] = {}
    requests: Counter[str] = Counter()
    for event in _events(log):
        about = event.get("objectRef", {})
        sort = " ".join([event["verb"], "/".join(filter(None, (about.get("resource"), about.get("subresource"))))])
        if created is None:
            if sort == "create devicetaintrules":
                created = datetime.fromisoformat(event["requestReceivedTimestamp"])
            continue
        if event["user"]["username"] != user or event["verb"] == "watch":
            continue
        requests[sort] += 1
        if sort == "delete pods":
            asked.append(datetime.fromisoformat(event["requestReceivedTimestamp"]))
            if event["responseStatus"]["code"] < 300:
                if about["name"] in granted:
                    raise BenchmarkError(f"{user} deleted pod {about['name']} twice")
                granted[about["name"]] = datetime.fromisoformat(event["stageTimestamp"])
    if created is None or len(granted) != pods:
        raise BenchmarkError(f"{user} deleted {len(granted)} pods of {pods}")
    first, last = min(asked), max(granted.values())
    return Seen((first - created).total_seconds(), (last - created).total_seconds(), requests)


def _events(log: Path) -> list[Json]:
    """In the order in which the requests came, not that of their ends."""
    with log.open() as lines:
        events = [json.loads(line) for line in lines]
    return sorted(events, key=lambda event: event["requestReceivedTimestamp"])
