"""Pods that come back to a tainted device through a claim that stays allocated. No I/O, no clock.

A scheduler does not look at the taints of a claim that is allocated already, and a claim stays allocated until its last
pod has gone. So a replacement that is scheduled while an evicted pod still terminates gets the same device, is evicted
like the first one, and so on. After two rounds the worker leaves the pods of such a claim alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from webhook.api.claims import ResourceClaim
from webhook.api.pods import Pod
from webhook.inventory.state import Inventory

ROUNDS_MOST: Final = 2
"""Evictions of the pods of one claim, before the worker stops for it."""


class _Rounds:
    """How often the pods of an allocated claim were evicted. `pods`: those of the last round, by uid.

    A round counts from its first request on, because a replacement may be seen before the response. `under_way`: the
    requests without a response; if none of a round evicts a pod, the round is taken back: `earlier` are the pods then.
    """

    __slots__ = ("claim_uid", "count", "earlier", "evicted", "pods", "under_way")

    def __init__(self, claim_uid: str) -> None:
        self.claim_uid = claim_uid
        self.count = 0
        self.pods: frozenset[str] = frozenset()
        self.earlier: frozenset[str] = frozenset()
        self.under_way = 0
        self.evicted = False


class Returns:
    """Rounds by claim, `namespace/name`, of claims that outlive their pods."""

    def __init__(self, inventory: Inventory, evicts_users_of: Callable[[str], bool]) -> None:
        """`evicts_users_of`: whether a taint evicts the pods of a claim. Other claims do not bring them back."""
        self._inventory = inventory
        self._evicts_users_of = evicts_users_of
        self._begun: dict[str, tuple[str, ...]] = {}
        """The claims whose rounds count a request without a response, by the uid of its pod."""
        self._rounds: dict[str, _Rounds] = {}

    def claim_of(self, pod: Pod) -> str:
        """The claim through which the pod has come back too often, by `namespace/name`; empty if there is none."""
        if not self._rounds:
            return ""
        for key in lasting_claims(pod):
            rounds = self._rounds.get(key)
            too_often = rounds is not None and rounds.count >= ROUNDS_MOST and pod.meta.uid not in rounds.pods
            if too_often and self._evicts_users_of(key):
                return key
        return ""

    def begin(self, pod: Pod) -> None:
        """The pod is about to be asked for. Pods that are there when a round begins belong to it."""
        counted = [key for key in lasting_claims(pod) if self._evicts_users_of(key)]
        self._begun[pod.meta.uid] = tuple(counted)
        for key in counted:
            claim_uid = self._inventory.claims[key].meta.uid
            rounds = self._rounds.get(key)
            if rounds is None or rounds.claim_uid != claim_uid:
                rounds = self._rounds[key] = _Rounds(claim_uid)
            if pod.meta.uid not in rounds.pods:
                users = [self._inventory.pods[name].meta.uid for name in self._inventory.pods_of(key)]
                rounds.earlier, rounds.pods = rounds.pods, frozenset([pod.meta.uid, *users])
                rounds.count += 1
                rounds.under_way, rounds.evicted = 0, False
            rounds.under_way += 1

    def end(self, pod: Pod, *, evicted: bool) -> list[str]:
        """The response to that request is known; returns the pods, by `namespace/name`, that were left alone for it."""
        left = list[str]()
        for key in self._begun.pop(pod.meta.uid, ()):
            rounds = self._rounds.get(key)
            if rounds is None or pod.meta.uid not in rounds.pods:
                continue
            rounds.under_way -= 1
            rounds.evicted |= evicted
            if rounds.under_way <= 0 and not rounds.evicted:
                pods = self._inventory.pods
                left += [name for name in self._inventory.pods_of(key) if pods[name].meta.uid not in rounds.pods]
                rounds.count -= 1
                rounds.pods = rounds.earlier
                if not rounds.count:
                    del self._rounds[key]
        return left

    def observe(self, key: str, claim: ResourceClaim | None) -> bool:
        """A claim has changed or is gone; returns whether its pods may be evicted again."""
        rounds = self._rounds.get(key)
        if rounds is None or (claim is not None and claim.meta.uid == rounds.claim_uid and claim.allocation):
            return False
        del self._rounds[key]
        return rounds.count >= ROUNDS_MOST

    def forget(self, pods: Iterable[Pod]) -> None:
        """No taint evicts these pods any longer, so what comes later starts over."""
        for pod in pods:
            for key in lasting_claims(pod):
                self._rounds.pop(key, None)


def lasting_claims(pod: Pod) -> list[str]:
    """Return the claims of a pod that were not made for it, and so are not deleted with it."""
    return [f"{pod.meta.namespace}/{each.claim}" for each in pod.claims if each.claim and not each.generated]
