"""An impact in words: for refusals, for warnings, and for the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.impact import Impact


def summary_of(impact: Impact, rule: DeviceTaintRule) -> str:
    """What a rule hits, in a clause that begins with a verb."""
    devices = _count(impact.devices, "device")
    if rule.selector is None:
        return f"keeps {devices} from being allocated"
    if rule.effective_effect != NO_EXECUTE:
        return f"hits {devices} in {_count(impact.pools, 'pool')}"
    return f"hits {devices}, {_count(len(impact.pods), 'pod')} in {_count(len(impact.namespaces), 'namespace')}"


def figures_of(impact: Impact, rule: DeviceTaintRule, *, in_tree: bool) -> Iterator[str]:
    """What a rule hits, as warnings: one sentence each. With effect None, what it would if it was NoExecute."""
    devices = f"{_count(impact.devices, 'device')} in {_count(impact.pools, 'pool')}"
    evicts = rule.effective_effect == NO_EXECUTE
    would = "" if evicts else "with effect NoExecute "
    if rule.selector is None:
        yield f"without a selector it evicts nobody, but keeps {devices} from being allocated"
        return
    if rule.effective_effect == NO_SCHEDULE:
        text = f"keeps {devices} from being allocated"
        yield f"{text}; {_count(len(impact.kept), 'pod')} on them stay" if impact.kept else text
    else:
        pods = _count(len(impact.pods), "pod")
        yield f"{would}selects {devices}; evicts {pods} in {_count(len(impact.namespaces), 'namespace')}{_when(impact)}"
        if impact.tolerating:
            yield f"{would}{_count(len(impact.tolerating), 'pod')} on such devices tolerate it"
        if impact.unseen:
            who = "the in-tree controller" if in_tree else "the evictor"
            yield f"{would}{_count(len(impact.unseen), 'pod')} with extended resources stay: {who} does not see them"
        if impact.pod_groups:
            yield f"{would}{_count(len(impact.pod_groups), 'PodGroup')} of unknown size use such devices"
    if impact.incomplete_pools:
        driver, pool = impact.incomplete_pools[0]
        pools = _count(len(impact.incomplete_pools), "pool")
        yield f"devices are not all counted: {pools} half published, as {driver}/{pool}"


def _when(impact: Impact) -> str:
    now, later = len(impact.now), [wave for wave in impact.waves if wave.seconds]
    if not later:
        return ", all at once" if now else ""
    pods = sum(len(wave.pods) for wave in later)
    first = _duration(later[0].seconds)
    rest = f"{pods} after {first}" if len(later) == 1 else f"{pods} after {first} to {_duration(later[-1].seconds)}"
    return f": {now} at once, {rest}"


def annotation_of(impact: Impact, *, acts: bool, over: Sequence[str]) -> str:
    """The figures for the audit log: `name=number`, and why they were too much."""
    figures = {
        "devices": impact.devices,
        "pools": impact.pools,
        "allocated": impact.allocated,
        "claims": len(impact.claims),
        "pods": len(impact.pods),
        "now": len(impact.now),
        "later": len(impact.later),
        "tolerating": len(impact.tolerating),
        "unseen": len(impact.unseen),
        "kept": len(impact.kept),
        "namespaces": len(impact.namespaces),
        "podGroups": len(impact.pod_groups),
    }
    text = " ".join(f"{name}={number}" for name, number in figures.items())
    if not acts:
        text += " simulated"
    return f"{text} over={';'.join(over)}" if over else text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _duration(seconds: int) -> str:
    """Whole seconds, in the largest unit that leaves no rest."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
