"""The policy's eviction profiles: the first one that matches a pod applies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from webhook.api.claims import allocated_classes
from webhook.inventory.state import claim_keys
from webhook.policy.match import LabelMatcher, NamespaceMatcher
from webhook.policy.model import EvictionProfile, Share
from webhook.policy.patterns import TextSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.api.pods import Pod
    from webhook.inventory.state import Inventory
    from webhook.policy.ports import NamespaceFacts


class Profile(NamedTuple):
    """A profile with its position in the policy, which identifies it."""

    position: int
    settings: EvictionProfile


def classes_of(inventory: Inventory, pod: Pod) -> frozenset[str]:
    """The device classes of a pod's allocated devices."""
    claims = [inventory.claims[key] for key in claim_keys(pod) if key in inventory.claims]
    return frozenset[str]().union(*[allocated_classes(claim) for claim in claims])


class Profiles:
    """All profiles, compiled."""

    def __init__(self, profiles: Sequence[EvictionProfile]) -> None:
        self.all = tuple(Profile(position, settings) for position, settings in enumerate(profiles))
        self._only = self.all[0] if len(self.all) == 1 else None
        self._names = [None if each.namespaces is None else NamespaceMatcher(each.namespaces) for each in profiles]
        self._labels = [None if each.pod_labels is None else LabelMatcher(each.pod_labels) for each in profiles]
        self.ask_for_classes = any(each.device_classes for each in profiles)
        """Whether any profile matches on device classes."""
        self._classes = [TextSet(each.device_classes) if each.device_classes else None for each in profiles]

    def of(self, pod: Pod, namespace: NamespaceFacts | None, device_classes: Iterable[str] = ()) -> Profile:
        """The profile for a pod; `device_classes` are those of its claims.

        A profile that needs an unknown fact does not match. The last profile matches every pod.
        """
        if self._only is not None:
            return self._only
        for profile, names, labels, classes in zip(self.all, self._names, self._labels, self._classes, strict=True):
            most = profile.settings.priority_at_most
            if most is not None and pod.priority > most:
                continue
            if names is not None and not names.matches(pod.meta.namespace, namespace, allowing=True):
                continue
            if labels is not None and not labels.matches(dict(pod.labels)):
                continue
            if classes is not None and not classes.holds_any(device_classes):
                continue
            return profile
        return self.all[-1]


def deletes_at_once(profile: EvictionProfile) -> bool:
    """Whether pods are deleted without asking their budgets, as by the in-tree controller."""
    return profile.delete_after_deadline and not profile.deadline_seconds


def max_unavailable(limit: int | Share | None, total: int) -> int | None:
    """How many of `total` may be unavailable: an owner's pods, or the devices of a driver; None is no limit.

    Shares are rounded up, as in PodDisruptionBudgets, so at least one may always be unavailable.
    """
    if isinstance(limit, Share):
        return max(math.ceil(total * limit.percent / 100), 1)
    return limit
