"""What the windows of the policy mean for a preview, as notes: pod by pod, where the pods are known."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from webhook.eviction.profiles import classes_of
from webhook.inventory.matching import Evictor
from webhook.policy.profile_matcher import PodFacts, ProfileMatcher
from webhook.policy.window_fit import Leaving, fit_texts, has_windows, windows_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from webhook.inventory.preview import PodRow, Preview
    from webhook.inventory.state import Inventory
    from webhook.policy.model import Policy


def window_notes(preview: Preview, inventory: Inventory, policy: Policy, now: datetime) -> Iterator[str]:
    """The windows of the pods that our worker would evict, and which of them the pods wait for."""
    taints = [taint for _, taint in preview.taints]
    if not any(taint.evictor is Evictor.OURS for taint in taints) or not has_windows(policy.eviction):
        return
    matcher, counts = ProfileMatcher(policy.eviction), dict[int | None, Counter[int]]()
    for row in preview.pods:
        if row.seconds is not None:
            counts.setdefault(matcher.profile_of(_facts_of(row, inventory)), Counter())[row.seconds] += 1
    pods = {position: dues for position, dues in counts.items() if position is not None}
    for position in sorted(pods):
        profile = policy.eviction[position]
        if profile.windows and not profile.skips:
            yield f"windows of profile {position}, for pods here: {windows_text(profile)}"
    yield from fit_texts(policy.eviction, Leaving(pods, now))


def _facts_of(row: PodRow, inventory: Inventory) -> PodFacts:
    """What is known of a pod; the labels of namespaces are not read here."""
    if row.pod is None:
        return PodFacts(row.namespace)
    pod = row.pod
    return PodFacts(
        row.namespace,
        classes=classes_of(inventory, pod),
        known=True,
        priority=pod.priority,
        labels=dict(pod.labels),
    )
