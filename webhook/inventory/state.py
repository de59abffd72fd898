"""The contents of the caches as one value: apply changes, ask questions. One owner; no waiting, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, assert_never

from webhook.api.claims import ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pod_groups import PodGroup
from webhook.api.pods import Pod, PodClaim
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.inventory.pools import Pools
from webhook.inventory.usage import Several, Usage, add_name, remove_name, uses

_TWO: Final = 2
InventoryObject: TypeAlias = ResourceSlice | DeviceTaintRule | ResourceClaim | Pod | PodGroup


def key_of(meta: ObjectMeta) -> str:
    """`namespace/name`, or the name alone for what has no namespace."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Inventory:
    """Slices, rules, claims and, in processes that may read them, pods and PodGroups.

    The same objects make the same inventory, in whatever order the changes of different objects arrive.
    """

    def __init__(self) -> None:
        self._rules: dict[str, DeviceTaintRule] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._pods: dict[str, Pod] = {}
        self._pod_groups: dict[str, PodGroup] = {}
        self._claim_pods: dict[str, Several] = {}
        self._sharing: Counter[str] = Counter()
        """How many of its claims a pod shares with others, for those that share any; both as `namespace/name`."""
        self._members: dict[str, dict[str, None]] = {}
        """The pods of each PodGroup, whether it is there or not; a dict, as a group may have thousands."""
        self._rule_keys: dict[str, int] = {}
        """Keys of the rules' taints, and how many rules have each."""
        self.servers: ServerFacts = UNKNOWN
        """What the API servers and the controllers of this cluster do."""
        self.pools = Pools()
        self.usage = Usage()
        self.rules: Mapping[str, DeviceTaintRule] = MappingProxyType(self._rules)
        """By name."""
        self.slices: Mapping[str, ResourceSlice] = MappingProxyType(self._slices)
        """By name."""
        self.claims: Mapping[str, ResourceClaim] = MappingProxyType(self._claims)
        """By `namespace/name`."""
        self.pods: Mapping[str, Pod] = MappingProxyType(self._pods)
        """By `namespace/name`; only those that name a claim, or a PodGroup."""
        self.pod_groups: Mapping[str, PodGroup] = MappingProxyType(self._pod_groups)
        """By `namespace/name`."""

    def apply(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object changed: `old` is None for what was added, `new` for what is gone.

        Objects are identified by kind and name; `old` serves for nothing else, as the inventory keeps its own copy. An
        object of the same name with another uid replaces the old one.
        """
        match new if new is not None else old:
            case ResourceSlice() as value:
                self._apply_slice(value, gone=new is None)
            case DeviceTaintRule() as rule:
                self._apply_rule(rule, gone=new is None)
            case ResourceClaim() as claim:
                self._apply_claim(claim, gone=new is None)
            case Pod() as pod:
                self._apply_pod(pod, gone=new is None)
            case PodGroup() as group:
                self._pod_groups.pop(key_of(group.meta), None)
                if new is not None:
                    self._pod_groups[key_of(group.meta)] = group
            case None:
                pass
            case unknown:
                assert_never(unknown)

    def _apply_rule(self, rule: DeviceTaintRule, *, gone: bool) -> None:
        known = self._rules.pop(rule.meta.name, None)
        if known is not None:
            left = self._rule_keys.pop(known.taint.key) - 1
            if left:
                self._rule_keys[known.taint.key] = left
        if not gone:
            self._rules[rule.meta.name] = rule
            self._rule_keys[rule.taint.key] = self._rule_keys.get(rule.taint.key, 0) + 1

    def _apply_slice(self, value: ResourceSlice, *, gone: bool) -> None:
        name = value.meta.name
        known = self._slices.pop(name, None)
        if not gone:
            self._slices[name] = value
        self.pools.apply(known, None if gone else value)

    def _apply_claim(self, claim: ResourceClaim, *, gone: bool) -> None:
        key = key_of(claim.meta)
        known = self._claims.pop(key, None)
        if known is not None:
            self.usage.remove(key, known)
        if not gone:
            self._claims[key] = claim
            self.usage.add(key, claim)

    def _apply_pod(self, pod: Pod, *, gone: bool) -> None:
        key = key_of(pod.meta)
        known = self._pods.pop(key, None)
        if known is not None:
            self._unlist_pod(key, known)
        if gone or not pod.is_held:
            return
        self._pods[key] = pod
        for claim in claim_keys(pod):
            users = add_name(self._claim_pods, claim, key)
            if len(users) > 1:
                self._sharing.update(users if len(users) == _TWO else (key,))
        if pod.pod_group:
            self._members.setdefault(f"{pod.meta.namespace}/{pod.pod_group}", {})[key] = None

    def _unlist_pod(self, key: str, known: Pod) -> None:
        for claim in claim_keys(known):
            left = remove_name(self._claim_pods, claim, key)
            if not left:
                continue
            for each in (key, *left) if len(left) == 1 else (key,):
                self._sharing[each] -= 1
                if not self._sharing[each]:
                    del self._sharing[each]
        if known.pod_group:
            group = f"{known.meta.namespace}/{known.pod_group}"
            del self._members[group][key]
            if not self._members[group]:
                del self._members[group]

    # --- questions -------------------------------------------------------------------------------

    def pods_of(self, claim: str) -> tuple[str, ...]:
        """The pods that name a claim, in whatever way, by name; both as `namespace/name`."""
        return tuple(sorted(self._claim_pods.get(claim, ())))

    def is_shared(self, claim: str) -> bool:
        """Whether several pods name a claim, by `namespace/name`."""
        return len(self._claim_pods.get(claim, ())) > 1

    def shares(self, pod: str) -> bool:
        """Whether a pod names a claim that other pods name as well, by `namespace/name`."""
        return pod in self._sharing

    def pods_using(self, claims: Iterable[str]) -> frozenset[str]:
        """The pods that name any of the claims, by `namespace/name`."""
        known = self._claim_pods
        return frozenset([pod for claim in claims for pod in known.get(claim, ())])

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """The allocated claims that are the pod's own to use (E-16 to E-18).

        The pod tells, as it tells the in-tree controller: what the claim says of itself is not asked.
        """
        found: list[ResourceClaim] = []
        for entry in (*pod.claims, PodClaim(pod.extended_claim, generated=True)):
            claim = self._claims.get(f"{pod.meta.namespace}/{entry.claim}") if entry.claim else None
            if claim is not None and claim.allocation and uses(pod, claim, generated=entry.generated):
                found.append(claim)
        return found

    def members_of(self, pod_group: str) -> tuple[str, ...]:
        """The pods of a PodGroup by name, with and without claims; both as `namespace/name`."""
        return tuple(sorted(self._members.get(pod_group, ())))

    def taint_keys(self) -> frozenset[str]:
        """The keys of all taints that are published, in slices or by rules."""
        return self.pools.taint_keys.union(self._rule_keys)

    def publishes(self, key: str) -> bool:
        """Whether a taint with this key is on any device or in any rule."""
        return key in self._rule_keys or key in self.pools.taint_keys


def claim_keys(pod: Pod) -> list[str]:
    """The claims that a pod names and that exist by name, each once."""
    names = {entry.claim for entry in pod.claims if entry.claim}
    if pod.extended_claim:
        names.add(pod.extended_claim)
    return [f"{pod.meta.namespace}/{name}" for name in sorted(names)]


class Sight(NamedTuple):
    """What is known of the cluster at this moment: an inventory, or in words why there is none to rely on."""

    inventory: Inventory | None
    unknown: str = ""
