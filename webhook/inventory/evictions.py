"""Which pods must be evicted, when and why, and through which claims a change may have changed that.

Nothing here knows of rates or budgets: a pod that is due is not evicted until those allow it.
Source: `semantics.md` E-5 to E-20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from webhook.api.claims import AllocationResult, ResourceClaim
from webhook.api.pods import Pod, PodGroup
from webhook.api.rules import NEVER, DeviceTaintRule
from webhook.api.servers import ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_EXECUTE, DeviceTaint, DeviceToleration
from webhook.inventory.gangs import keeps_all
from webhook.inventory.impact import HARMLESS, Taint
from webhook.inventory.pools import FOR_EVER, PoolId
from webhook.inventory.state import Inventory, InventoryObject, key_of
from webhook.inventory.targets import DeviceNames, EvictionScope, can_judge, is_ours, is_same_taint, start_of

LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The end of the calendar."""
_NO_CLAIMS: Final[frozenset[str]] = frozenset()
_ALIKE_MOST: Final = 1024
"""Different tolerations under the same rules whose result is kept."""


class EvictionReason(msgspec.Struct, frozen=True, gc=False):
    """One taint that evicts a pod: that of a rule, or one on a device in a slice."""

    taint: DeviceTaint
    rule: str = ""
    rule_uid: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    index: int = 0

    @property
    def order(self) -> tuple[bool, str, str, str, str, int]:
        """Rules first by name, then slices by driver, pool, device and position (E-11)."""
        return (not self.rule, self.rule, self.driver, self.pool, self.device, self.index)

    def __str__(self) -> str:
        if self.rule:
            return f"DeviceTaintRule {self.rule}"
        return f"taint {self.taint.key} of device {self.driver}/{self.pool}/{self.device}"


RuleRef: TypeAlias = tuple[str, str]
"""Uid and name of a rule."""


class Eviction(msgspec.Struct, frozen=True, gc=False):
    """When a pod is due, and all taints that evict it, including those that would do so later (E-11).

    `rules` are those among the reasons, by uid, with their names; it follows from them. `waits`: the pod stays, as all
    reasons are in slices of pools that are not published in full.
    """

    due: datetime
    reasons: tuple[EvictionReason, ...]
    rules: tuple[RuleRef, ...] = ()
    waits: bool = False

    def __post_init__(self) -> None:
        # Once for all pods that share the value.
        rules = {reason.rule_uid: reason.rule for reason in self.reasons if reason.rule}
        structs.force_setattr(self, "rules", tuple(rules.items()))


class Without(NamedTuple):
    """Reasons that are left out: those in slices of these drivers, and these rules by uid."""

    drivers: AbstractSet[str] = frozenset()
    rules: frozenset[str] = frozenset()


NOTHING: Final = Without()


class _Acting(NamedTuple):
    """A rule that evicts. `not_before`: no pod is due sooner."""

    taint: Taint
    reason: EvictionReason
    names: DeviceNames
    not_before: datetime | None


_Sort = tuple[tuple[int, ...], tuple["DeviceToleration", ...], frozenset[str]]


class Evictions:
    """Which pods the inventory says must be evicted. Report each change here once the inventory has applied it.

    `announced_at` returns when the eviction that a rule asks for was announced; None: not yet, so it evicts no pod.
    """

    def __init__(
        self, inventory: Inventory, scope: EvictionScope, announced_at: Callable[[DeviceTaintRule], datetime | None]
    ) -> None:
        self._inventory = inventory
        self._scope = scope
        self._announced_at = announced_at
        self._servers = inventory.servers
        self._acting: dict[str, _Acting] = {}
        self._at: dict[tuple[str | None, ...], tuple[_Acting, ...]] = {}
        """Rules by the names that they select."""
        self._shapes: tuple[tuple[bool, bool, bool], ...] = ()
        self.tainted: dict[PoolId, Mapping[str, tuple[DeviceTaint, ...]]] = {}
        """Devices with taints in slices that evict, by pool and name."""
        self._incomplete: set[PoolId] = set()
        """Those of these pools whose newest generation is not complete."""
        self.on_tainted: Callable[[str, str, list[str]], None] = lambda *_: None
        """Called with the driver, the pool and the names of devices that have one more taint in a slice just now."""
        self.expired: Callable[[DeviceTaintRule], bool] = lambda _: False
        """Tells whether a rule evicts no pod any more; `refresh` its name when that changes."""
        self._alike: dict[_Sort, Eviction | None] = {}
        """Claims under the same rules with the same tolerations share one result, and one value in memory."""

    # --- changes ---------------------------------------------------------------------------------

    def touched(self, old: InventoryObject | None, new: InventoryObject | None) -> AbstractSet[str]:
        """Return the claims through which a change may have changed when pods are due. A pod only concerns itself.

        The inventory has applied it already. Claims go by `namespace/name`.
        """
        match new if new is not None else old:
            case ResourceClaim() as claim:
                return frozenset({key_of(claim.meta)})
            case DeviceTaintRule() as rule:
                return self.refresh(rule.meta.name)
            case ResourceSlice():
                pools = {(each.driver, each.pool) for each in (old, new) if isinstance(each, ResourceSlice)}
                return _NO_CLAIMS.union(*[self._retainted(pool) for pool in pools])
            case Pod() | PodGroup() | None:
                return _NO_CLAIMS

    def refresh(self, *names: str) -> AbstractSet[str]:
        """Return the claims touched by what is known of rules now: their fields, and `announced_at`."""
        places = list[DeviceNames]()
        for name in names:
            before = self._acting.pop(name, None)
            rule = self._inventory.rules.get(name)
            after = None if rule is None else self._acting_of(rule)
            if after is not None:
                self._acting[name] = after
            if before != after:
                places += [each.names for each in (before, after) if each is not None]
        if not places:
            return _NO_CLAIMS
        self._index()
        return self._claims_on(*places)

    def everything(self) -> frozenset[str]:
        """Rebuild everything from the inventory; returns all of its pods, as `namespace/name`."""
        self._acting.clear()
        self.tainted.clear()
        for name, rule in self._inventory.rules.items():
            acting = self._acting_of(rule)
            if acting is not None:
                self._acting[name] = acting
        self._index()
        if self._scope.no_execute is not None:
            evicting = [(identity, pool.evicting) for identity, pool in self._inventory.pools.items()]
            self.tainted = {identity: taints for identity, taints in evicting if taints}
            self._incomplete = {identity for identity in self.tainted if identity in self._inventory.pools.incomplete}
        return frozenset(self._inventory.pods)

    def _acting_of(self, rule: DeviceTaintRule) -> _Acting | None:
        if not is_ours(rule, self._scope) or not can_judge(rule.selector) or self.expired(rule):
            return None
        assert rule.selector is not None
        not_before = start_of(rule, self._scope)
        if not_before == NEVER:
            return None
        if rule.taint.effect == NO_EXECUTE:
            taint = Taint(rule.taint, self._scope.no_execute)
        else:
            taint = Taint.of_rule(rule, in_tree=False)
            announced_at = self._announced_at(rule)
            if announced_at is None:
                return None
            not_before = announced_at if not_before is None else max(announced_at, not_before)
        names = DeviceNames(rule.selector.driver, rule.selector.pool, rule.selector.device)
        return _Acting(taint, EvictionReason(taint.taint, rule.meta.name, rule.meta.uid), names, not_before)

    def _index(self) -> None:
        at: dict[DeviceNames, list[_Acting]] = {}
        for _, acting in sorted(self._acting.items()):
            at.setdefault(acting.names, []).append(acting)
        self._at = {names: tuple(found) for names, found in at.items()}
        shapes = {(names.driver is not None, names.pool is not None, names.device is not None) for names in at}
        self._shapes = tuple(sorted(shapes))
        self._alike.clear()

    def _retainted(self, identity: PoolId) -> AbstractSet[str]:
        if self._scope.no_execute is None:
            return _NO_CLAIMS
        pool = self._inventory.pools.get(identity)
        before, waited = self.tainted.pop(identity, {}), identity in self._incomplete
        after = {} if pool is None else pool.evicting
        if waits := pool is not None and (before or after) and not pool.complete:  # and no eviction is cancelled
            after = {name: taints for name, taints in before.items() if name not in pool.devices} | dict(after)
        if after:
            self.tainted[identity] = after
        (self._incomplete.add if after and waits else self._incomplete.discard)(identity)
        fresh = [
            name
            for name, taints in after.items()
            if taints != (known := before.get(name, ()))
            and not all(any(is_same_taint(each, one) for one in known) for each in taints)
        ]
        if fresh:
            self.on_tainted(*identity, fresh)
        flipped = waited != (identity in self._incomplete)
        changed = [name for name in before.keys() | after.keys() if flipped or before.get(name) != after.get(name)]
        return self._claims_on(*[DeviceNames(*identity, name) for name in changed])

    def _claims_on(self, *places: DeviceNames) -> AbstractSet[str]:
        usage, claims = self._inventory.usage, self._inventory.claims
        if any(
            names.pool is names.device is None and 2 * usage.count_on(names.driver) > len(claims) for names in places
        ):
            return claims.keys()  # hardly more, and not to be gathered first
        found = [usage.claims_on(*names) for names in set(places)]
        return found[0] if len(found) == 1 else _NO_CLAIMS.union(*found)  # one may be large, and is not copied

    # --- fate ------------------------------------------------------------------------------------

    def eviction_of(self, pod: Pod, without: Without = NOTHING) -> Eviction | None:
        """Return when and why the pod has to go, or None. Phase and deletion are not looked at (E-19)."""
        if not pod.node_name:
            return None
        claims = self._inventory.claims_of(pod)
        if len(claims) == 1:
            return self._eviction_by(claims[0], without)
        found: list[Eviction] = []
        for claim in claims:
            eviction = self._eviction_by(claim, without)
            if eviction is not None and eviction not in found:
                found.append(eviction)
        found = [eviction for eviction in found if not eviction.waits] or found
        if len(found) <= 1:
            return found[0] if found else None
        reasons = {reason for eviction in found for reason in eviction.reasons}
        due = min(eviction.due for eviction in found)
        return Eviction(due, tuple(sorted(reasons, key=lambda reason: reason.order)), waits=found[0].waits)

    def hits(self) -> dict[str, Eviction]:
        """Return the pods that have to go, sooner or later, by `namespace/name`; it looks at all pods."""
        found = [(key, self.eviction_of(pod)) for key, pod in self._inventory.pods.items()]
        return {key: eviction for key, eviction in found if eviction is not None}

    def act(self, eviction: Eviction) -> bool:
        """Tell whether one of its reasons still evicts pods."""
        acting = {each.reason for each in self._acting.values()}
        published = [each for each in eviction.reasons if (each.driver, each.pool) not in self._incomplete]
        return any(each in acting or each.taint in self._taints_on(each) for each in published)

    def would_evict(self, pod: Pod, taint: Taint, names: DeviceNames) -> bool:
        """Tell whether the taint, on the named devices, would evict the pod, sooner or later (E-19 holds as above).

        It would not if `holding_group` said that this is in vain.
        """
        if not pod.node_name:
            return False
        hit = [
            claim
            for claim in self._inventory.claims_of(pod)
            if any(
                names.includes(result)
                and taint.fate(self._inventory.servers, result.tolerations) not in (FOR_EVER, HARMLESS)
                for result in claim.allocation or ()
            )
        ]
        return bool(hit) and not keeps_all(self._inventory, pod, hit)

    def evicts_users_of(self, key: str, without: Without = NOTHING) -> bool:
        """Tell whether a taint evicts the pods that use a claim, by `namespace/name`, sooner or later."""
        claim = self._inventory.claims.get(key)
        return claim is not None and self._eviction_by(claim, without) is not None

    def holding_group(self, pod: Pod, without: Without = NOTHING) -> str:
        """Return the pod's PodGroup, by name, if it keeps all claims reserved that make the pod go; else empty.

        Such a claim is deallocated only once the PodGroup is deleted, whatever becomes of the pods (KEP-5729).
        """
        if not pod.pod_group:
            return ""
        hit = [claim for claim in self._inventory.claims_of(pod) if self._eviction_by(claim, without) is not None]
        return pod.pod_group if hit and keeps_all(self._inventory, pod, hit) else ""

    def _eviction_by(self, claim: ResourceClaim, without: Without) -> Eviction | None:
        results = claim.allocation or ()
        if len(results) == 1 and (not self.tainted or not self._taints_on(results[0])):
            return self._eviction_by_rules(results[0], without.rules)
        due: datetime | None = None
        reasons, waiting = dict[EvictionReason, None](), dict[EvictionReason, datetime]()
        for result in results:
            by_rules = self._eviction_by_rules(result, without.rules)
            if by_rules is not None:
                due = by_rules.due if due is None else min(due, by_rules.due)
                reasons.update(dict.fromkeys(by_rules.reasons))
            for index, taint in enumerate(() if result.driver in without.drivers else self._taints_on(result)):
                acting = Taint(taint, self._scope.no_execute)
                reason = EvictionReason(taint, "", "", result.driver, result.pool, result.device, index)
                time = _due(acting, result.tolerations, None, self._inventory.servers)
                if time is None:
                    continue
                if (result.driver, result.pool) in self._incomplete:
                    waiting[reason] = time
                    continue
                reasons[reason] = None
                due = time if due is None else min(due, time)
        if due is None and waiting:
            reasons, due = dict.fromkeys(waiting), min(waiting.values())
        ordered = tuple(sorted(reasons, key=lambda reason: reason.order))
        return None if due is None else Eviction(due, ordered, waits=reasons.keys() == waiting.keys())

    def _taints_on(self, result: AllocationResult | EvictionReason) -> tuple[DeviceTaint, ...]:
        """Return the taints in slices that evict."""
        tainted = self.tainted.get((result.driver, result.pool))
        return tainted.get(result.device, ()) if tainted is not None else ()

    def _eviction_by_rules(self, result: AllocationResult, without: frozenset[str]) -> Eviction | None:
        """Return the eviction by rules alone; claims that look the same to the rules share one result."""
        hits: list[tuple[_Acting, ...]] = []
        driver, pool, device = result.driver, result.pool, result.device
        for by_driver, by_pool, by_device in self._shapes:
            hit = self._at.get(
                (driver if by_driver else None, pool if by_pool else None, device if by_device else None)
            )
            if hit is not None:
                hits.append(hit)
        if not hits:
            return None
        if self._servers is not self._inventory.servers:
            self._servers = self._inventory.servers
            self._alike.clear()
        sort = (tuple(map(id, hits)), result.tolerations, without)
        try:
            return self._alike[sort]
        except KeyError:
            if len(self._alike) >= _ALIKE_MOST:
                self._alike.clear()
            acting = [each for hit in hits for each in hit if each.reason.rule_uid not in without]
            eviction = self._alike[sort] = _eviction_under(acting, result.tolerations, self._inventory.servers)
            return eviction


def _eviction_under(
    hits: list[_Acting], tolerations: tuple[DeviceToleration, ...], servers: ServerFacts
) -> Eviction | None:
    due: datetime | None = None
    reasons: list[EvictionReason] = []
    for acting in hits:
        time = _due(acting.taint, tolerations, acting.not_before, servers)
        if time is not None:
            reasons.append(acting.reason)
            due = time if due is None else min(due, time)
    return None if due is None else Eviction(due, tuple(sorted(reasons, key=lambda reason: reason.order)))


def later(time: datetime, seconds: float) -> datetime:
    """Return a time that number of seconds later; the end of the calendar stands for every time after it."""
    if not seconds:
        return time
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return LAST


def _due(
    taint: Taint, tolerations: tuple[DeviceToleration, ...], not_before: datetime | None, servers: ServerFacts
) -> datetime | None:
    """Return when the taint evicts pods with these tolerations; None is never.

    A taint without a time evicts no pod: API servers always set one (E-12).
    """
    seconds = taint.fate(servers, tolerations)
    added = taint.taint.time_added
    if seconds in (FOR_EVER, HARMLESS) or added is None:
        return None
    due = later(added, max(seconds, 0))
    return due if not_before is None else max(due, not_before)
