"""The pods that a taint hits, kept claim by claim: a change touches the pods that it concerns, and no others.

A large change is followed in steps; while that lasts, what is known is `behind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from msgspec import structs

from webhook.api.pods import Pod
from webhook.eviction.profiles import Profile, gang_text
from webhook.inventory.evictions import Eviction, Evictions, RuleRef
from webhook.inventory.gangs import goes_with_all, group_key
from webhook.inventory.state import Inventory, claim_keys

AT_ONCE_MOST: Final = 256
"""Up to this many claims and pods are followed before the event loop runs anything else: a few milliseconds."""
_STEP: Final = 64
_GROWN_MOST: Final = 4096
"""A rule that has come to hit more pods, one by one, is counted again."""


class Affected:
    """Pods go by `namespace/name`."""

    def __init__(self, inventory: Inventory, evictions: Evictions, profile_of: Callable[[Pod], Profile]) -> None:
        self._inventory = inventory
        self._evictions = evictions
        self._profile_of = profile_of
        self.hit: dict[str, Eviction] = {}
        """The pods that a taint hits, and why."""
        self.revision = 0
        """Grows with each change of these pods, and of what else a plan is made from."""
        self._grown: dict[str, dict[tuple[str, str], None]] = {}
        """By the uid of each rule: pods that it has come to hit since the last plan was begun."""
        self._settling: dict[str, dict[tuple[str, str], None]] = {}
        """The same, from the plan before to the beginning of the one that is being made."""
        self.changed: dict[str, set[str]] = {}
        """The pods that another plan may follow from, with the uids that they had or have."""
        self.whole = True
        """Whether another plan may follow for any pod."""
        self._known: dict[str, tuple[Pod, str]] = {}
        """Each of the pods that are hit as it was last seen, and its gang."""
        self._gangs: dict[str, dict[str, None]] = {}
        self._claims: dict[str, None] = {}
        self._pods: dict[str, None] = {}
        self._all: list[str] = []
        """What is still to be followed; what was added last is taken first, as it is often close in memory."""

    @property
    def pending(self) -> int:
        """The number of claims and pods that are still to be followed."""
        return len(self._claims) + len(self._pods) + len(self._all)

    def mark_claims(self, claims: AbstractSet[str]) -> None:
        """Note that the pods of these claims may be hit by others from now on.

        If these are most of the claims, all pods are looked at, which is faster than looking up the pods of each claim.
        """
        if len(claims) >= AT_ONCE_MOST and 2 * len(claims) > len(self._inventory.claims):
            self.mark_all()
        else:
            self._claims.update(dict.fromkeys(claims))

    def mark(self, pods: Iterable[str]) -> None:
        """Note that these pods have changed, or their gangs have."""
        self._pods.update(dict.fromkeys(pods))

    def mark_all(self) -> None:
        """Note that any pod may have changed."""
        self._all = list(self._inventory.pods)

    def touch(self, key: str, *uids: str) -> None:
        """Note that another plan may follow from what is known of a pod now."""
        self.revision += 1
        self.changed.setdefault(key, set()).update(uids)

    def touch_all(self) -> None:
        """Note that another plan may follow for any pod."""
        self.revision += 1
        self.whole = True

    def follow(self) -> None:
        """Follow some of what is pending."""
        if self._claims:
            claims = [self._claims.popitem()[0] for _ in range(min(_STEP, len(self._claims)))]
            self.mark(self._inventory.pods_using(claims))
        elif self._pods:
            for _ in range(min(_STEP, len(self._pods))):
                self._follow(self._pods.popitem()[0])
        else:
            for key in self._all[-_STEP:]:
                self._follow(key)
            del self._all[-_STEP:]

    def _follow(self, key: str) -> None:
        pod, before, known = self._inventory.pods.get(key), self.hit.get(key), self._known.get(key)
        eviction = None if pod is None else self._evictions.eviction_of(pod)
        if eviction is None and before is None:
            return
        if known is not None:
            self._leave(key, known[1])
        uids = {each.meta.uid for each in (pod, None if known is None else known[0]) if each is not None}
        if pod is None or eviction is None:
            del self.hit[key]
            self.touch(key, *uids)
            return
        gang = gang_text(self._inventory, pod, self._profile_of(pod))
        self._known[key] = pod, gang
        if gang:
            self._gangs.setdefault(gang, {})[key] = None
        same = known is not None and known[0].meta.uid == pod.meta.uid
        known_rules = before.rules if same and before is not None else ()
        self.grow(key, pod.meta.uid, [each for each in eviction.rules if each not in known_rules])
        self.hit[key] = eviction
        if known is None or eviction != before or gang != known[1] or not alike(known[0], pod):
            self.touch(key, *uids)

    def grow(self, key: str, uid: str, rules: Iterable[RuleRef]) -> None:
        """Note that rules have come to hit a pod, itself or as one that goes along."""
        for rule, _ in rules:
            grown = self._grown.setdefault(rule, {})
            grown[key, uid] = None
            if len(grown) > _GROWN_MOST:
                self.touch_all()

    def begin(self) -> None:
        """Begin a plan of all pods."""
        self.changed, self.whole = {}, False
        grown, self._grown = self._grown, {}
        if not self._settling:
            self._settling = grown
        else:
            for uid, pods in grown.items():
                self._settling.setdefault(uid, {}).update(pods)

    def settle(self) -> list[dict[tuple[str, str], None]]:
        """Note that the plan is made; return what is to be dropped in steps."""
        settled, self._settling = list(self._settling.values()), {}
        return settled

    def grown_by(self, rule_uid: str) -> frozenset[str]:
        """Return the pods that a rule has come to hit since the last plan of all, and those of their PodGroups.

        As `namespace/name`, and with a uid behind that for those that have gone, which may have been evicted.
        """
        found = set[str]()
        for key, uid in (*self._grown.get(rule_uid, ()), *self._settling.get(rule_uid, ())):
            pod = self._inventory.pods.get(key)
            there = pod is not None and pod.meta.uid == uid
            found.add(key if there else f"{key}/{uid}")
            if pod is not None and pod.pod_group and goes_with_all(self._inventory, pod):
                found.update(self._inventory.members_of(group_key(pod)))
        return frozenset(found)

    def _leave(self, key: str, gang: str) -> None:
        del self._known[key]
        if gang:
            members = self._gangs[gang]
            del members[key]
            if not members:
                del self._gangs[gang]

    def linked_to(self, pods: Iterable[str]) -> dict[str, None]:
        """Return all pods that may go together with these, directly or through others; with these."""
        found, left, followed = dict[str, None](), list(pods), set[str]()
        while left:
            key = left.pop()
            pod = self._inventory.pods.get(key)
            if key in found:
                continue
            found[key] = None
            if pod is None:
                continue
            for link, others in self._links_of(key, pod):
                if link not in followed:
                    followed.add(link)
                    left += others()
        return found

    def _links_of(self, key: str, pod: Pod) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
        """Yield the PodGroup, the gang and the claims of a pod, and the pods of each."""
        if pod.pod_group and goes_with_all(self._inventory, pod):
            group = group_key(pod)
            yield f"group {group}", partial(self._inventory.members_of, group)
        if key in self._known and (gang := self._known[key][1]):
            yield f"gang {gang}", partial(tuple, self._gangs[gang])
        if self._inventory.shares(key):
            for claim in claim_keys(pod):
                yield f"claim {claim}", partial(self._inventory.pods_of, claim)


def alike(old: Pod, new: Pod) -> bool:
    """Tell whether it is the same pod, and a plan reads the same from both."""
    return old.meta.uid == new.meta.uid and structs.replace(old, meta=new.meta, ready=new.ready) == new
