"""What a soak has made of the cluster, and when each of its pods may go.

Times are the API server's own (`timeAdded`), or those before and after a request.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tests.apiserver.eviction.bench import VERSION, now
from webhook.api.meta import format_time

Json = dict[str, Any]

EVICT: Final = "devicetaint.io/evict"
EXPIRES: Final = "devicetaint.io/expires-at"
GANG: Final = "devicetaint.io/gang"
ALL: Final = "all"
"""The name of the PodGroup that goes as a whole, and its mode."""
SINGLE: Final = "single"
FOR_EVER: Final = -1
"""Of tolerations, in seconds."""
DEVICES: Final = 6
"""Of a pool."""
STUCK_SECONDS: Final = 10
_LONG: Final = timedelta(hours=1)
_EVER: Final = datetime.min.replace(tzinfo=UTC)
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
    """A time in which something lets a pod go."""

    start: datetime
    end: datetime | None


class Spans:
    """The times in which one of the things lets a pod go that all have to. Each change may be noticed late."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        """In order; only the last one may have no end yet."""
        self._due: datetime | None = None

    def follow(self, due: datetime | None, start: datetime, end: datetime) -> None:
        """After a change between two times the pod may go at another one, or (None) not at all."""
        if due == self._due:
            return
        if self._due is not None:
            self._spans[-1] = self._spans[-1]._replace(end=end)
        if due is not None:
            self._spans.append(Span(max(due, start), None))
        self._due = due

    def include(self, at: datetime, slack: timedelta) -> bool:
        """Whether a time is in one of them, or after its end by less than the slack."""
        return any(span.start <= at and (span.end is None or at <= span.end + slack) for span in self._spans)

    def __repr__(self) -> str:
        return ", ".join(f"{span.start} to {span.end or 'the end'}" for span in self._spans) or "never"


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
    claim: str = ""
    """Of that name; pods may share one."""
    gang: str = ""
    """Annotation `/gang`."""
    group: str = ""
    """A PodGroup, by its mode."""
    returned: bool = False
    """Whether it joined its claim later, so that it may be left alone."""
    allocated: bool = True
    hold: bool = False
    due: Spans = field(default_factory=Spans)
    """When a taint let it go."""
    free: Spans = field(default_factory=Spans)
    """When no hold and no pause kept it."""

    def follow(self, due: datetime | None, start: datetime, end: datetime, *, free: bool) -> None:
        """After a change between two times: when a taint lets it go, if at all, and whether nothing keeps it."""
        self.due.follow(due, start, end)
        self.free.follow(_EVER if free else None, start, end)

    def could_go(self, at: datetime, slack: timedelta) -> bool:
        """Whether it might go at a time.

        Rules, slices, claims, pods, namespaces and the policy are each followed by themselves. So the end of a hold or
        a pause may be noticed before the end of a taint, although that ended first.
        """
        return self.due.include(at, slack) and self.free.include(at, slack)


def companions(pod: Held, pods: Iterable[Held]) -> list[Held]:
    """The other pods of its PodGroup, if that goes as a whole."""
    if pod.group != ALL:
        return []
    return [each for each in pods if each.group == ALL and each.namespace == pod.namespace and each is not pod]


def together(pod: Held, pods: Iterable[Held]) -> list[Held]:
    """Pods that it is linked to, itself included: by gangs, PodGroups and claims."""
    found, left = [pod], [pod]
    others = [each for each in pods if each.namespace == pod.namespace and each is not pod]
    while left:
        known = left.pop()
        for each in [other for other in others if _linked(known, other)]:
            others.remove(each)
            found.append(each)
            left.append(each)
    return found


def _linked(a: Held, b: Held) -> bool:
    return a.claim == b.claim or bool(a.gang and a.gang == b.gang) or (a.group == b.group == ALL)


@dataclass
class Pool:
    """A pool of one driver: a slice, and one more with counters that its devices share."""

    driver: str
    name: str
    generation: int = 1
    devices: int = DEVICES
    shares: bool = False
    """Whether its devices are partitions of one."""
    taints: dict[str, datetime | None] = field(default_factory=dict)
    """By device; when it was tainted with NoExecute."""


class RuleModel(NamedTuple):
    """A rule as it was answered."""

    selector: Json
    effect: str
    added: datetime
    asks: bool
    """Whether it has the annotation that asks for eviction."""
    expires: bool
    """Whether the worker takes it back at a time that the model does not know."""

    def hits(self, place: tuple[str, str, str]) -> bool:
        """Whether it selects a device."""
        return all(self.selector.get(name, each) == each for name, each in zip(FIELDS, place, strict=True))


def tolerations_for(seconds: int) -> list[Json]:
    """Of a claim whose pods tolerate NoExecute for so long."""
    if seconds == FOR_EVER:
        return [{"operator": "Exists"}]
    return [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}] if seconds else []


FIELDS: Final = ("driver", "pool", "device")


def tainted_devices(stored: Json) -> Iterator[tuple[str, datetime]]:
    for device in stored["spec"]["devices"]:
        for taint in device.get("taints", ()):
            if taint["effect"] == "NoExecute":
                yield device["name"], datetime.fromisoformat(taint["timeAdded"])


def slices_of(pool: Pool, taint: Json, tainted: Container[str]) -> dict[str, Json]:
    """Its slices by name; the first has the devices."""
    about: Json = {"name": pool.name, "generation": pool.generation, "resourceSliceCount": 2 if pool.shares else 1}
    common: Json = {"driver": pool.driver, "allNodes": True, "pool": about}
    part: Json = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "10Gi"}}}]}
    names = [f"device-{number}" for number in range(pool.devices)]
    devices: list[Json] = [
        {"name": name, **({"taints": [taint]} if name in tainted else {}), **(part if pool.shares else {})}
        for name in names
    ]
    specs: dict[str, Json] = {pool.name: {**common, "devices": devices}}
    if pool.shares:
        counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
        specs[f"{pool.name}-counters"] = {**common, "sharedCounters": counters}
    return {
        name: {"apiVersion": VERSION, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    }


def make_pod(pod: Held, owner: str) -> Json:
    namespace, stays = pod.namespace, pod.stays
    metadata: Json = {"name": pod.name, "labels": {"app": owner or pod.name}}
    metadata |= {"annotations": {GANG: pod.gang}} if pod.gang else {}
    if owner:
        uid = f"{namespace}-{owner}"
        about = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": True}
        metadata["ownerReferences"] = [about]
    spec: Json = {
        "nodeName": "nowhere",
        "terminationGracePeriodSeconds": 5 if stays else 0,
        "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": pod.claim}],
    }
    spec |= {"schedulingGroup": {"podGroupName": pod.group}} if pod.group else {}
    return {"metadata": metadata, "spec": spec}
