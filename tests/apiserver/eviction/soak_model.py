"""What a soak has made of the cluster, and when each of its pods may go.

Times are the API server's own (`timeAdded`), or those before and after a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.apiserver.eviction.bench import now
from webhook.api.meta import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

EVICT: Final = "devicetaint.io/evict"
FOR_EVER: Final = -1
"""Of tolerations, in seconds."""
DEVICES: Final = 6
"""Of a pool."""
STUCK_SECONDS: Final = 10
_LONG: Final = timedelta(hours=1)
_BASE: Final = {"rate": 1000, "burst": 1000, "perOwnerUnavailable": None, "stuckAfter": f"{STUCK_SECONDS}s"}
PROFILES: Final[tuple[Json, ...]] = (
    _BASE,
    _BASE | {"rate": 3, "burst": 2, "perOwnerUnavailable": 1},
    _BASE | {"perOwnerUnavailable": "50%", "overall": 4, "maxPerMinute": 100},
    _BASE | {"deadline": "10s", "afterDeadline": "delete", "perNamespace": 3},
    _BASE | {"deadline": "0s", "afterDeadline": "delete"},
)
BREAKERS: Final[tuple[Json, ...]] = (
    {"devices": None, "window": "10s"},
    {"devices": 4, "window": "10s", "calm": "10s"},
    {"devices": "50%", "window": "20s", "calm": "10s"},
)
_NO_LIMITS: Final[Json] = {"limits": [{"pods": None, "claims": None, "devices": None, "namespaces": None}]}


def policy_of(profile: Json, breaker: Json, *, limit: int | None = None, pause: bool = False) -> Json:
    """A policy document. `limit`: the most pods that a rule may hit; namespaces labelled `gentle` are slow."""
    limits = {"limits": [_NO_LIMITS["limits"][0] | {"pods": limit}]}
    gentle = {"namespaces": {"labels": {"gentle": "true"}}} | PROFILES[1]
    return {
        "apiVersion": "policy.devicetaint.io/v1alpha1",
        "kind": "DeviceTaintPolicy",
        "inTreeEvictor": "absent",
        "trustedNamespaceLabels": ["kubernetes.io/metadata.name", "gentle"],
        "impact": limits,
        "eviction": [gentle, profile],
        "breaker": breaker,
        **({"pause": {"until": format_time(now() + _LONG), "why": "soak"}} if pause else {}),
    }


LENIENT: Final = policy_of(_BASE, BREAKERS[0])
"""Nothing but budgets and holds keeps a pod that is due."""


class Span(NamedTuple):
    """A time in which a pod may go; a change may be noticed some seconds after the end."""

    start: datetime
    end: datetime | None


@dataclass
class Held:
    """A pod as the model has it."""

    namespace: str
    name: str
    uid: str
    place: tuple[str, str, str]
    """Driver, pool and device."""
    seconds: int
    """For which it tolerates NoExecute."""
    stays: bool
    """Whether it is left terminating until it is ended here."""
    allocated: bool = True
    hold: bool = False
    due: datetime | None = None
    """When it may go, as things stand."""
    since: datetime | None = None
    """Since when it may."""
    spans: list[Span] = field(default_factory=list)

    def follow(self, due: datetime | None, start: datetime, end: datetime) -> None:
        """After a change between two times it may go at another one, or (None) not at all."""
        if due == self.due:
            return
        if self.since is not None:
            self.spans.append(Span(self.since, end))
        self.due, self.since = due, None if due is None else max(due, start)

    def could_go(self, at: datetime, slack: timedelta) -> bool:
        """Whether it might go at a time."""
        spans = [*self.spans, *([] if self.since is None else [Span(self.since, None)])]
        return any(span.start <= at and (span.end is None or at <= span.end + slack) for span in spans)


@dataclass
class Pool:
    """A pool of one driver in one slice."""

    driver: str
    name: str
    generation: int = 1
    devices: int = DEVICES
    taints: dict[str, datetime | None] = field(default_factory=dict)
    """By device; when it was tainted with NoExecute."""


class RuleModel(NamedTuple):
    """A rule as it was answered."""

    selector: Json
    effect: str
    added: datetime
    asks: bool
    """Whether it has the annotation that asks for eviction."""

    def hits(self, place: tuple[str, str, str]) -> bool:
        """Whether it selects a device."""
        return all(self.selector.get(name, each) == each for name, each in zip(FIELDS, place, strict=True))


FIELDS: Final = ("driver", "pool", "device")


def tainted_devices(stored: Json) -> Iterator[tuple[str, datetime]]:
    for device in stored["spec"]["devices"]:
        for taint in device.get("taints", ()):
            if taint["effect"] == "NoExecute":
                yield device["name"], datetime.fromisoformat(taint["timeAdded"])


def make_pod(namespace: str, name: str, owner: str, *, stays: bool) -> Json:
    metadata: Json = {"name": name, "labels": {"app": owner or name}}
    if owner:
        uid = f"{namespace}-{owner}"
        about = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": True}
        metadata["ownerReferences"] = [about]
    spec = {
        "nodeName": "nowhere",
        "terminationGracePeriodSeconds": 5 if stays else 0,
        "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    return {"metadata": metadata, "spec": spec}
