"""Notes on a preview: what is unknown, what is easily overlooked, and what the windows of the policy mean."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.rules import DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.commands.preview.report import not_judged
from webhook.commands.preview.text import first_names, taint_text
from webhook.eviction.profiles import classes_of
from webhook.inventory.fates import DeviceNames
from webhook.inventory.holders import unused_claims
from webhook.inventory.matching import Evictor, acts
from webhook.inventory.preview import outdated
from webhook.inventory.scope import can_judge
from webhook.policy.profile_matcher import PodFacts, ProfileMatcher
from webhook.policy.window_fit import Leaving, fit_texts, has_windows, windows_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from webhook.api.device_classes import DeviceClassSelectors
    from webhook.api.patches import ResourceSlicePatch
    from webhook.inventory.preview import PodRow, Preview
    from webhook.inventory.state import Inventory
    from webhook.policy.model import Policy

_NEEDED: Final = {
    "ResourceSlice": "ResourceSlices, so published devices are unknown",
    "ResourceClaim": "ResourceClaims, so it is unknown which pods use a device",
    "Pod": "Pods, so it is unknown who owns them, their priorities, and which are terminating or finished",
}


class PreviewSource(NamedTuple):
    """Where an inventory comes from. `kinds` counts the objects of a dump, by kind; None for a cluster."""

    inventory: Inventory
    pods_known: bool
    kinds: Mapping[str, int] | None = None
    rules_served: bool = True
    notes: tuple[str, ...] = ()
    patches: Mapping[str, ResourceSlicePatch] = {}
    classes: Mapping[str, DeviceClassSelectors] = {}

    def knows(self, kind: str) -> bool:
        """Whether there are objects of a kind: a dump without any says nothing about what they tell."""
        return self.kinds is None or bool(self.kinds.get(kind))


def notes_of(
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch, preview: Preview, source: PreviewSource
) -> Iterator[str]:
    """All notes on one preview; lint findings are separate, and so are those on what a patch does to devices."""
    match value:
        case DeviceTaintRule():
            yield from _rule_notes(value, source)
        case ResourceSlice():
            yield from _slice_notes(value, preview, source)
        case _:
            pass
    incomplete = preview.impact.incomplete_pools
    if incomplete:
        names = first_names([f"{driver}/{pool}" for driver, pool in incomplete])
        yield f"not all slices are published for pools {names}: some of their devices are not counted"
    if source.kinds is not None:
        for kind, text in _NEEDED.items():
            if not source.kinds.get(kind):
                yield f"the dump has no {text}"
    if source.pods_known:
        missing = [f"{row.namespace}/{row.name}" for row in preview.pods if row.pod is None]
        if missing:
            yield f"claims are reserved for pods that were not found but are counted: {first_names(missing)}"
    yield from source.notes


def _rule_notes(rule: DeviceTaintRule, source: PreviewSource) -> Iterator[str]:
    if not source.rules_served:
        yield "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaintRules): rules would do nothing"
    selector = rule.selector
    unjudged = [] if selector is None else not_judged(selector)
    if selector is not None and unjudged:
        counted = "counted as every device" if selector.unknown else "left out of the count"
        fields = ", ".join(unjudged)
        yield f"what {fields} of the selector selects cannot be evaluated here: {counted}, so less may be hit"
    stored = source.inventory.rules.get(rule.meta.name)
    if stored is not None:
        yield f"the rule already exists, as {taint_text(stored.taint)}: what it already does is counted, too"
    if acts(rule.taint.effect) and can_judge(selector):
        unused = unused_claims(source.inventory, DeviceNames.of(selector, source.inventory.servers))
        if unused:
            names = first_names(unused)
            yield f"no eviction frees the devices of claims that are allocated and used by no pod: {names}"


def _slice_notes(value: ResourceSlice, preview: Preview, source: PreviewSource) -> Iterator[str]:
    if outdated(source.inventory, value):
        yield f"a newer generation of the pool than {value.pool_generation} is published, so this slice is ignored"
        return
    if not preview.taints:
        yield "its devices have no new taints"
    passive = {
        taint_text(taint)
        for taint in (*value.distinct_taints, *[entry.taint for entry in value.slice_taints])
        if not acts(taint.effect)
    }
    if passive and preview.taints and not preview.simulated:
        yield f"taints that do nothing are left out: {', '.join(sorted(passive))}"


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
