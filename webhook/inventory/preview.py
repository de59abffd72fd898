"""What a rule or a slice would do before it is applied: its impact, and pod by pod who is evicted, when and why.

The rows use the same fates as `Impact`. Pods that are terminating or finished get an outcome of their own and do not
count as evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.claims import Consumer
from webhook.api.pods import Pod
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_EXECUTE, DeviceTaint, DeviceToleration
from webhook.inventory.gangs import is_leaving
from webhook.inventory.hardware import siblings_of_rule, siblings_of_slice
from webhook.inventory.impact import Impact, Taint, impact_of, impact_on_devices
from webhook.inventory.pools import FOR_EVER, Evictor, acts, counts, taints_of_slice, tolerates
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.state import Inventory, is_pod, key_of
from webhook.inventory.targets import DeviceId, DeviceNames, is_same_taint


class Preview(msgspec.Struct, frozen=True):
    """What taints would do. `simulated`: they do nothing, and this is what they would with effect NoExecute."""

    impact: Impact
    taints: tuple[tuple[DeviceNames, Taint], ...] = ()
    """Which taint is on which devices, as evaluated here."""
    simulated: bool = False
    pods: tuple[PodRow, ...] = ()
    """Evicted pods first, soonest first; then the others."""
    pod_groups: tuple[GroupRow, ...] = ()

    def count(self, outcome: PodOutcome) -> int:
        """Return how many pods have this outcome."""
        return sum(row.outcome is outcome for row in self.pods)

    @property
    def extended(self) -> int:
        """How many pods are evicted only because of extended resources, by the in-tree controller."""
        extended = self.impact.extended
        return sum(row.outcome is PodOutcome.EVICTED and row.uid in extended for row in self.pods)

    @property
    def companions(self) -> int:
        """How many pods are evicted only because their PodGroup is disrupted as a whole."""
        return sum(row.cause.reason is OutcomeReason.WITH_POD_GROUP for row in self.pods)

    @property
    def waves(self) -> dict[int, int]:
        """How many pods go, by seconds from now, soonest first."""
        return dict(sorted(Counter(row.seconds for row in self.pods if row.seconds is not None).items()))

    @property
    def claims(self) -> list[str]:
        """The claims for which pods or PodGroups are evicted."""
        return sorted({claim for row in self._evicted() for claim in row.claims})

    @property
    def namespaces(self) -> list[str]:
        """Where pods or PodGroups are evicted."""
        return sorted({row.namespace for row in self._evicted()})

    def _evicted(self) -> Iterator[UserRow]:
        rows: tuple[UserRow, ...] = (*self.pods, *self.pod_groups)
        return (row for row in rows if row.outcome is PodOutcome.EVICTED)


def rule_preview(inventory: Inventory, rule: DeviceTaintRule, *, in_tree: bool, now: datetime) -> Preview:
    """Return what a rule would do from `now` on; if its effect does nothing, what it would with NoExecute (E-40)."""
    taint = Taint.of_rule(rule, in_tree=in_tree)
    simulated = not acts(rule.taint.effect)  # whatever `/evict` asks: with None it is not heeded
    if simulated:
        taint = taint.as_if_evicting(in_tree=in_tree)
    siblings = siblings_of_rule(inventory, rule, NO_EXECUTE if simulated else "")
    impact = structs.replace(impact_of(inventory, rule.selector, taint, now), siblings=siblings)
    taints = ((DeviceNames.of(rule.selector, inventory.servers), taint),)
    if rule.selector is None:
        return Preview(impact, taints, simulated)
    return Preview(impact, taints, simulated, *rows_of(inventory, taints, now))


def slice_preview(inventory: Inventory, value: ResourceSlice, *, in_tree: bool, now: datetime) -> Preview:
    """Return what the new taints of a slice would do; what does nothing is judged only if all of them do nothing."""
    added = new_taints(inventory, value)
    simulated = not any(acts(taint.effect) for taints in added.values() for taint in taints)
    judged: dict[str, list[Taint]] = {}
    for device, taints in added.items():
        found = [Taint.of_slice(taint, in_tree=in_tree) for taint in taints if simulated or acts(taint.effect)]
        if found:
            judged[device] = [taint.as_if_evicting(in_tree=in_tree) for taint in found] if simulated else found
    if not judged:
        return Preview(Impact())
    ranks = {device: max(EFFECT_RANK[taint.taint.effect] for taint in taints) for device, taints in judged.items()}
    impact = structs.replace(
        impact_on_devices(inventory, (value.driver, value.pool), judged, now),
        siblings=siblings_of_slice(inventory, value, ranks),
    )
    pairs = tuple(
        (DeviceNames(value.driver, value.pool, device), taint) for device, taints in judged.items() for taint in taints
    )
    return Preview(impact, pairs, simulated, *rows_of(inventory, pairs, now))


def new_taints(inventory: Inventory, value: ResourceSlice) -> dict[str, tuple[DeviceTaint, ...]]:
    """Return the taints of a slice that the devices do not have yet, timeAdded aside; none if it is outdated."""
    if outdated(inventory, value):
        return {}
    pool = inventory.pools.get((value.driver, value.pool))
    found: dict[str, list[DeviceTaint]] = {}
    for name, taint in taints_of_slice(value):
        known = pool.taints_of(name) if pool is not None else ()
        listed = found.setdefault(name, [])
        if not any(is_same_taint(taint, each) for each in (*known, *listed)):
            listed.append(taint)
    return {name: tuple(taints) for name, taints in found.items() if taints}


def outdated(inventory: Inventory, value: ResourceSlice) -> bool:
    """Tell whether a newer generation of the pool is published, so that the slice is ignored (E-2)."""
    pool = inventory.pools.get((value.driver, value.pool))
    return pool is not None and any(each.pool_generation > value.pool_generation for each in pool.own)


# --- pod by pod ----------------------------------------------------------------------------------


class PodOutcome(StrEnum):
    """What happens to a pod. If it uses several devices, the worst outcome decides; this is the order, worst first."""

    EVICTED = "Evicted"
    TOLERATES = "Tolerates"
    LEFT_ALONE = "LeftAlone"
    """The taint would evict it, but our worker does not: see `commands.preview.run`."""
    NO_NODE = "NoNode"
    """The taint would evict it, and nothing does before it is on a node (E-15)."""
    KEPT = "Kept"
    """The taint keeps the device from new allocations, and evicts no pod."""
    LEAVING = "Leaving"
    """It is terminating or finished."""


_WORST: Final = {outcome: rank for rank, outcome in enumerate(PodOutcome)}
_SHOWN: Final = (
    PodOutcome.EVICTED,
    PodOutcome.LEFT_ALONE,
    PodOutcome.NO_NODE,
    PodOutcome.TOLERATES,
    PodOutcome.KEPT,
    PodOutcome.LEAVING,
)


class OutcomeReason(StrEnum):
    """Why a pod has its outcome."""

    NOT_TOLERATED = "NotTolerated"
    EFFECT_NOT_NAMED = "EffectNotNamed"
    """A toleration covers the taint but does not name NoExecute, which the in-tree controller wants (E-9)."""
    TOLERATED_FOR_SECONDS = "ToleratedForSeconds"
    TOLERATED = "Tolerated"
    TOLERATES_SCHEDULING = "ToleratesScheduling"
    """It would come back to the same device, so our worker leaves it there."""
    EXTENDED_RESOURCE = "ExtendedResource"
    """Not tolerated, and the in-tree controller evicts: older ones leave the pod alone."""
    ALLOCATION_ONLY = "AllocationOnly"
    TERMINATING = "Terminating"
    FINISHED = "Finished"
    WITH_POD_GROUP = "WithPodGroup"
    """The taint evicts another pod of its PodGroup, which is disrupted as a whole."""
    HELD_BY_POD_GROUP = "HeldByPodGroup"
    """Its claims stay reserved for its PodGroup, so its eviction would free no device."""
    MIRROR_POD = "MirrorPod"
    DAEMON_SET = "DaemonSet"
    ACTION_SKIP = "ActionSkip"
    """The profile of the pod says `action: skip`."""


class Cause(NamedTuple):
    """A reason, with the taint and, where there is one, the toleration that decides."""

    reason: OutcomeReason
    taint: DeviceTaint
    toleration: DeviceToleration | None = None


class UserRow(msgspec.Struct, frozen=True):
    """One user of devices. `seconds` from now until it goes, None if it does not.

    `devices` are all that it has of those in question; `claims` the ones that lead to this outcome.
    """

    namespace: str
    name: str
    uid: str
    outcome: PodOutcome
    seconds: int | None
    cause: Cause
    devices: tuple[DeviceId, ...]
    claims: tuple[str, ...]


class PodRow(UserRow, frozen=True):
    """One pod. `pod` is None if it is not known."""

    pod: Pod | None = None


class GroupRow(UserRow, frozen=True):
    """A PodGroup that reserved a claim: all of its pods share the outcome. `pods` are its pods that are known."""

    pods: tuple[str, ...] = ()


class _Hit(NamedTuple):
    """What one taint on one device means for its user. `seconds` is -1 if the user is not evicted."""

    outcome: PodOutcome
    seconds: int
    claim: str
    device: DeviceId
    cause: Cause


class _User(NamedTuple):
    """A consumer, and everything that hits it."""

    namespace: str
    consumer: Consumer
    hits: list[_Hit]


def rows_of(
    inventory: Inventory, taints: Iterable[tuple[DeviceNames, Taint]], now: datetime
) -> tuple[tuple[PodRow, ...], tuple[GroupRow, ...]]:
    """Return pods and PodGroups that use the devices on which the taints are; who is evicted first, soonest first."""
    pods: list[PodRow] = []
    groups: list[GroupRow] = []
    for user in _users(inventory, taints, now):
        if not is_pod(user.consumer):
            groups.append(_group_row(inventory, user))
        elif (row := _pod_row(inventory, user)) is not None:
            pods.append(row)
    return tuple(sorted(pods, key=row_order)), tuple(sorted(groups, key=row_order))


def row_order(row: UserRow) -> tuple[int, int, str, str, str]:
    """Order evicted rows first, soonest first; then the others by outcome and name."""
    return _SHOWN.index(row.outcome), row.seconds or 0, row.namespace, row.name, row.uid


def _users(inventory: Inventory, taints: Iterable[tuple[DeviceNames, Taint]], now: datetime) -> Iterable[_User]:
    users: dict[str, _User] = {}
    for names, taint in taints:
        judged: dict[tuple[tuple[DeviceToleration, ...], bool], tuple[PodOutcome, int, Cause]] = {}
        for key in inventory.usage.claims_on(*names):
            claim = inventory.claims[key]
            for result in claim.allocation or ():
                device = DeviceId(result.driver, result.pool, result.device)
                if not claim.reserved_for or not names.includes(result):
                    continue
                sort = result.tolerations, claim.extended_resource
                if sort not in judged:
                    judged[sort] = outcome_of(
                        taint, result.tolerations, now, inventory.servers, extended=claim.extended_resource
                    )
                outcome, seconds, cause = judged[sort]
                hit = _Hit(outcome, seconds, key, device, cause)
                for consumer in claim.reserved_for:
                    if consumer.uid not in users:
                        users[consumer.uid] = _User(claim.meta.namespace, consumer, [])
                    users[consumer.uid].hits.append(hit)
    return users.values()


def outcome_of(
    taint: Taint, tolerations: tuple[DeviceToleration, ...], now: datetime, servers: ServerFacts, *, extended: bool
) -> tuple[PodOutcome, int, Cause]:
    """Return what a taint does to a pod with these tolerations, in how many seconds (-1: not at all), and why."""
    grace = taint.fate(servers, tolerations)
    if taint.evictor is None:
        return PodOutcome.KEPT, -1, Cause(OutcomeReason.ALLOCATION_ONLY, taint.taint)
    cause = _cause(taint, tolerations, servers)
    if extended and taint.evictor is Evictor.IN_TREE and cause.reason is OutcomeReason.NOT_TOLERATED:
        cause = Cause(OutcomeReason.EXTENDED_RESOURCE, taint.taint)
    if grace == FOR_EVER:
        return PodOutcome.TOLERATES, -1, cause
    return PodOutcome.EVICTED, taint.due_seconds(grace, now), cause


def _cause(taint: Taint, tolerations: Sequence[DeviceToleration], servers: ServerFacts) -> Cause:
    """Return which toleration decides, read as the evictor reads them (E-9, E-10)."""
    acting = taint.taint
    if taint.scheduling is not None:
        for toleration in tolerations:
            if tolerates(toleration, taint.scheduling):
                return Cause(OutcomeReason.TOLERATES_SCHEDULING, taint.scheduling, toleration)
    covering = [toleration for toleration in tolerations if tolerates(toleration, acting)]
    assert taint.evictor is not None
    counting = [toleration for toleration in covering if counts(toleration, taint.evictor, servers)]
    timed: list[tuple[int, DeviceToleration]] = []
    for toleration in counting:
        if toleration.toleration_seconds is None:
            return Cause(OutcomeReason.TOLERATED, acting, toleration)
        timed.append((toleration.toleration_seconds, toleration))
    if timed:
        return Cause(OutcomeReason.TOLERATED_FOR_SECONDS, acting, min(timed, key=lambda pair: pair[0])[1])
    if covering:
        return Cause(OutcomeReason.EFFECT_NOT_NAMED, acting, covering[0])
    return Cause(OutcomeReason.NOT_TOLERATED, acting)


def _worst(hits: list[_Hit]) -> tuple[_Hit, tuple[DeviceId, ...], tuple[str, ...]]:
    """Return the hit that decides, all devices, and the claims that lead to the same."""
    worst = min(hits, key=lambda hit: (_WORST[hit.outcome], hit.seconds, hit.claim, hit.device))
    devices = tuple(sorted({hit.device for hit in hits}))
    return worst, devices, tuple(sorted({hit.claim for hit in hits if hit.outcome is worst.outcome}))


def _pod_row(inventory: Inventory, user: _User) -> PodRow | None:
    """Return the pod, unless it is known and none of the claims is its own to use, as the evictor reads them."""
    namespace, consumer, hits = user
    pod = inventory.pods.get(f"{namespace}/{consumer.name}")
    if pod is not None and pod.meta.uid != consumer.uid:
        pod = None  # another one of that name
    if pod is not None:
        own = {key_of(claim.meta) for claim in inventory.claims_of(pod)}
        hits = [hit for hit in hits if hit.claim in own]
    if not hits:
        return None
    worst, devices, claims = _worst(hits)
    outcome, cause = worst.outcome, worst.cause
    if pod is not None and is_leaving(pod):
        outcome = PodOutcome.LEAVING
        cause = Cause(OutcomeReason.TERMINATING if pod.deleting else OutcomeReason.FINISHED, cause.taint)
    elif pod is not None and outcome is PodOutcome.EVICTED and not pod.node_name:
        outcome = PodOutcome.NO_NODE
    seconds = worst.seconds if outcome is PodOutcome.EVICTED else None
    return PodRow(namespace, consumer.name, consumer.uid, outcome, seconds, cause, devices, claims, pod)


def _group_row(inventory: Inventory, user: _User) -> GroupRow:
    """Return a PodGroup with those of its pods that name one of the claims."""
    worst, devices, claims = _worst(user.hits)
    namespace, consumer = user.namespace, user.consumer
    members = {
        key
        for claim in claims
        for key in inventory.pods_of(claim)
        if (pod := inventory.pods[key]).pod_group == consumer.name
        and pod.node_name
        and not is_leaving(pod)
        and inventory.claims[claim] in inventory.claims_of(pod)
    }
    seconds = worst.seconds if worst.outcome is PodOutcome.EVICTED else None
    return GroupRow(
        namespace,
        consumer.name,
        consumer.uid,
        worst.outcome,
        seconds,
        worst.cause,
        devices,
        claims,
        tuple(sorted(members)),
    )
