"""The policy's eviction profiles: the first one that matches a pod applies."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from sys import intern
from typing import NamedTuple

from webhook.api.claims import allocated_classes
from webhook.api.pods import Pod
from webhook.inventory.gangs import gang_in, root_owner
from webhook.inventory.state import Inventory, claim_keys
from webhook.policy.limits import PodFacts, ProfileMatcher
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import EvictionProfile, Share


class Profile(NamedTuple):
    """A profile with its position in the policy, which identifies it."""

    position: int
    settings: EvictionProfile


def classes_of(inventory: Inventory, pod: Pod) -> frozenset[str]:
    """Return the device classes of a pod's allocated devices."""
    claims = [inventory.claims[key] for key in claim_keys(pod) if key in inventory.claims]
    return frozenset[str]().union(*[allocated_classes(claim) for claim in claims])


class Profiles:
    """All profiles, as the evictor applies them."""

    def __init__(self, profiles: Sequence[EvictionProfile]) -> None:
        self.all = tuple(Profile(position, settings) for position, settings in enumerate(profiles))
        self._only = self.all[0] if len(self.all) == 1 else None
        self._matcher = ProfileMatcher(profiles)
        self._ask_for_labels = any(each.pod_labels is not None for each in profiles)
        self.ask_for_classes = any(each.device_classes for each in profiles)
        """Whether any profile matches on device classes."""

    def of(self, pod: Pod, namespace: NamespaceFacts | None, device_classes: Collection[str] = ()) -> Profile:
        """Return the profile for a pod; `device_classes` are those of its claims.

        A profile that needs an unknown fact does not match. The last profile matches every pod.
        """
        if self._only is not None:
            return self._only
        labels = dict(pod.labels) if self._ask_for_labels else {}
        facts = PodFacts(pod.meta.namespace, namespace, device_classes, True, pod.priority, labels)  # noqa: FBT003 -- known
        return self.all[self._matcher.profile_to_apply(facts)]


def deletes_at_once(profile: EvictionProfile) -> bool:
    """Tell whether pods are deleted without asking their budgets, as by the in-tree controller."""
    return profile.delete_after_deadline and not profile.deadline_seconds


def max_unavailable(limit: int | Share | None, total: int) -> int | None:
    """Return how many of `total` may be unavailable: an owner's pods, or the devices of a driver; None is no limit.

    Shares are rounded up, as in PodDisruptionBudgets, so at least one may always be unavailable.
    """
    if isinstance(limit, Share):
        return max(math.ceil(round(total * limit.percent / 100, 6)), 1)
    return limit


def gang_text(inventory: Inventory, pod: Pod, profile: Profile) -> str:
    """Return a text that identifies the gang of a pod, by its profile; empty if it has none."""
    settings = profile.settings
    if not (pod.pod_group or pod.gang or pod.labels or settings.gang_by_owner):
        return ""  # as for most pods
    gang = gang_in(inventory, pod, settings.gang_labels, by_owner=settings.gang_by_owner)
    return "" if gang is None else intern(f"{gang.kind} {gang.namespace}/{gang.name} {gang.key}")


def owner_of(pod: Pod) -> str:
    """Return the owner at the top, by uid or by name; empty for a pod without one."""
    if pod.owner is not None and not pod.labels:
        return intern(f"{pod.meta.namespace}/{pod.owner.uid}")  # as for most pods
    root = root_owner(pod)
    return "" if root is None else root.key
