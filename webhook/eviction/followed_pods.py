"""Pods as the policy's profiles see them: their gang, and whether our worker skips them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from webhook.api.pods import Pod
from webhook.eviction.pod_plan import StepReason, exemption
from webhook.eviction.profiles import Profile, Profiles, classes_of
from webhook.inventory.gangs import Gang, GangSizes, gang_in
from webhook.inventory.impact import KnownPods
from webhook.inventory.preview import OutcomeReason
from webhook.inventory.state import Inventory, InventoryObject
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import EvictionProfile, Policy

EXEMPTIONS: Final = {
    StepReason.MIRROR: OutcomeReason.MIRROR_POD,
    StepReason.DAEMON: OutcomeReason.DAEMON_SET,
    StepReason.SKIPPED: OutcomeReason.ACTION_SKIP,
}


class ProfiledPods:
    """Answers for the pods of an inventory."""

    def __init__(
        self,
        inventory: Inventory,
        profiles: Iterable[EvictionProfile],
        facts_of: Callable[[str], NamespaceFacts | None] = lambda _: None,
    ) -> None:
        """`facts_of`: the labels of a namespace by its name, None if they are not known; without it none are."""
        self._inventory = inventory
        self._profiles = Profiles(tuple(profiles))
        self._facts_of = facts_of
        self.profiles = self._profiles.all
        """By their position in the policy."""

    def gang_of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod, by its profile; None if it has none."""
        settings = self.profile_of(pod).settings
        return gang_in(self._inventory, pod, settings.gang_labels, by_owner=settings.gang_by_owner)

    def exemption_of(self, pod: Pod) -> OutcomeReason | None:
        """Say why our worker never evicts a pod of this kind, or None."""
        reason = exemption(pod, self.profile_of(pod).settings)
        return None if reason is None else EXEMPTIONS[reason]

    def profile_of(self, pod: Pod) -> Profile:
        """Return the profile that applies to a pod."""
        classes = classes_of(self._inventory, pod) if self._profiles.ask_for_classes else ()
        return self._profiles.of(pod, self._facts_of(pod.meta.namespace), classes)


class FollowedPods:
    """What is known of the pods of an inventory, under one policy at a time."""

    def __init__(self, inventory: Inventory, facts_of: Callable[[str], NamespaceFacts | None]) -> None:
        """`facts_of`: the labels of a namespace by its name, None if they are not known."""
        self._inventory = inventory
        self._facts_of = facts_of
        self._sizes = GangSizes(inventory)
        self._policy: Policy | None = None
        self._known: KnownPods | None = None

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Note a change of an object, which the inventory has applied."""
        self._sizes.observe(old, new)

    def under(self, policy: Policy) -> KnownPods:
        """Return what the profiles of this policy say of the pods. Compiled once for each policy."""
        if self._known is None or policy is not self._policy:
            pods = ProfiledPods(self._inventory, policy.eviction, self._facts_of)
            labels = [label for profile in policy.eviction for label in profile.gang_labels]
            self._known = KnownPods(pods.gang_of, pods.exemption_of, self._sizes.by_labels(labels))
            self._policy = policy
        return self._known
