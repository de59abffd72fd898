"""An impact in words: for refusals, for warnings, and for the audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from webhook.api.messages import counted
from webhook.api.meta import format_time
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import ServerFacts
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.inventory.gangs import Gang
from webhook.inventory.hardware import Siblings
from webhook.inventory.impact import Impact

_SHOWN: Final = 3
_NAME_MOST: Final = 80
"""Characters of a gang's name that are shown."""
_OVER: Final = " over="
_DRIVER: Final = " driver="
_UNKNOWN: Final = "unknown:"
IMPACT: Final = "impact"
"""The audit annotation with the figures."""


def on_extended_resources(servers: ServerFacts) -> str:
    """Say who evicts pods whose devices came through extended resources."""
    if servers.extended_evicted is None:
        return "the in-tree controller evicts such pods from 1.37.2 on; before, it leaves them alone"
    if servers.extended_evicted:
        return "the in-tree controller of this version evicts such pods"
    return "the in-tree controller of this version leaves such pods alone; from 1.37.2 on it evicts them"


def on_missing_selector(servers: ServerFacts) -> str:
    """Say what a rule without selector does, in both readings."""
    if servers.missing_selects_nothing:
        return "selects nothing here; servers before 1.37.1 would allocate no device while it exists"
    if servers.missing_selects_nothing is False:
        return "evicts no pod, but servers of this version allocate no device while it exists"
    return "evicts no pod, but servers before 1.37.1 allocate no device while it exists"


def summary_of(impact: Impact, rule: DeviceTaintRule, servers: ServerFacts) -> str:
    """Say what a rule hits, in a clause that begins with a verb."""
    devices = counted(impact.devices, "device")
    if rule.selector is None:
        return f"keeps {devices} from being allocated" if impact.devices else "hits no device"
    if rule.effective_effect != NO_EXECUTE:
        return f"hits {devices} in {counted(impact.pools, 'pool')}"
    text = f"hits {devices}, {counted(len(impact.pods), 'pod')} in {counted(len(impact.namespaces), 'namespace')}"
    gangs = gangs_text(impact)
    text = f"{text}, {gangs}" if gangs else text
    return f"{text} ({_extended(impact, servers)})" if impact.extended else text


def slice_figures_of(impact: Impact, servers: ServerFacts) -> Iterator[str]:
    """Say what new NoExecute taints in a slice hit, as warnings."""
    pods = f"{counted(len(impact.pods), 'pod')} in {counted(len(impact.namespaces), 'namespace')}"
    yield f"new NoExecute taints on {counted(impact.devices, 'device')}; they evict {pods}{_when(impact)}"
    yield from _gangs(impact, "")
    yield from _others(impact, "", servers)
    if impact.siblings:
        yield siblings_text(impact.siblings)


def figures_of(impact: Impact, rule: DeviceTaintRule, servers: ServerFacts, start: datetime | None) -> Iterator[str]:
    """Yield what a rule hits, one sentence each; with effect None, what it would if it was NoExecute.

    `start`: before this time our worker evicts no pod.
    """
    devices = f"{counted(impact.devices, 'device')} in {counted(impact.pools, 'pool')}"
    would = "" if rule.effective_effect in (NO_SCHEDULE, NO_EXECUTE) else "with effect NoExecute "
    if not impact.devices and not impact.allocated and not impact.incomplete_pools:
        return  # lint warns if nothing is selected
    if rule.selector is None:
        none = f"{would}and no selector" if would else "without a selector"
        yield f"{none} it evicts no pod, but keeps {devices} from being allocated"
        return
    if rule.effective_effect == NO_SCHEDULE:
        text = f"keeps {devices} from being allocated"
        yield f"{text}; no harm to {counted(len(impact.kept), 'pod')} on them" if impact.kept else text
    else:
        pods = counted(len(impact.pods), "pod")
        when = f", from {format_time(start)} on" if start is not None and impact.later else _when(impact)
        yield f"{would}selects {devices}; evicts {pods} in {counted(len(impact.namespaces), 'namespace')}{when}"
        yield from _gangs(impact, would)
        yield from _others(impact, would, servers)
    if impact.incomplete_pools:
        driver, pool = impact.incomplete_pools[0]
        pools = counted(len(impact.incomplete_pools), "pool")
        yield f"devices are not all counted: {pools} half published, as {driver}/{pool}"


def gangs_text(impact: Impact) -> str:
    """Say how many pods of how many gangs go, with the names of the first gangs; empty if there are none."""
    gangs = impact.gangs
    if not gangs:
        return ""
    evicted, pods = sum(each.evicted for each in gangs), sum(each.pods for each in gangs)
    whole = f"of {pods}" if len(gangs) == 1 else f"of {pods} in all"
    names = [_shown_name(each.gang) for each in gangs[:_SHOWN]]
    rest = f" and {len(gangs) - _SHOWN} more" if len(gangs) > _SHOWN else ""
    text = f"{counted(evicted, 'pod')} of {counted(len(gangs), 'gang')} {whole} ({', '.join(names)}{rest})"
    along = len(impact.companions)
    return f"{text}, {along} of them only with the rest of their PodGroup" if along else text


def _shown_name(gang: Gang) -> str:
    """Return its name: the text of an annotation may be of any length, and contain anything."""
    text = "".join(each if each.isprintable() else "?" for each in str(gang))
    return text if len(text) <= _NAME_MOST else f"{text[:_NAME_MOST]}..."


def _gangs(impact: Impact, would: str) -> Iterator[str]:
    text = gangs_text(impact)
    if text:
        yield f"{would}evicts {text}"


def siblings_text(siblings: Siblings) -> str:
    """Name parts of the same hardware that stay in service, and who uses them; empty if there are none."""
    number, used = len(siblings.devices), siblings.in_use
    if not number:
        return ""
    text = f"{counted(number, 'other device')} of the same hardware {'stays' if number == 1 else 'stay'} in service"
    if not used:
        return f"{text}; no pod uses {'it' if number == 1 else 'them'}"
    users = [
        f"{noun}{'' if len(names) == 1 else 's'} {first_names(names)}"
        for noun, names in (("pod", siblings.pods), ("PodGroup", siblings.pod_groups))
        if names
    ]
    return f"{text}, {'' if number == 1 else f'{used} of them '}in use by {' and '.join(users)}"


def places_figures(impact: Impact) -> Iterator[str]:
    """Say how many pods that are evicted find no other device, who can never come back, and what is not known."""
    places = impact.places or ()
    pods, none = sum(len(each.pods) for each in places), [each for each in places if each.none]
    if none:
        free, numbers = {each.shape.needs: each.free for each in reversed(none)}, Counter[str]()
        for each in none:
            numbers[each.shape.needs] += each.none
        needs = [
            f"{number} {'needs' if number == 1 else 'need'} {need}, {free[need]} free"
            for need, number in numbers.most_common()
        ]
        rest = f"; and {counted(len(needs) - _SHOWN, 'other need')}" if len(needs) > _SHOWN else ""
        text = "; ".join(needs[:_SHOWN])
        pending = sum(each.none for each in none)
        yield f"{pending} of {counted(pods, 'pod')} {'finds' if pending == 1 else 'find'} no other device: {text}{rest}"
    never = [f"{pod.namespace}/{pod.name}" for each in none if each.never for pod in each.pending]
    if never:
        verb = "cannot" if len(never) == 1 else "can never"
        yield f"{counted(len(never), 'pod')} {verb} come back while the taint stands: {first_names(never)}"
    unknown = [each for each in places if each.unknown]
    if unknown:
        number = counted(sum(each.unknown for each in unknown), "pod")
        yield f"it is not known whether {number} would find other devices: {unknown[0].why}"


def _extended(impact: Impact, servers: ServerFacts) -> str:
    pods = counted(len(impact.extended), "pod")
    return f"of these {pods} with extended resources: {on_extended_resources(servers)}"


def _others(impact: Impact, would: str, servers: ServerFacts) -> Iterator[str]:
    """Say who evicts pods with extended resources, which are not evicted, and which cannot be counted."""
    if impact.extended:
        yield _extended(impact, servers)
    if impact.tolerating:
        yield f"{would}tolerated by {counted(len(impact.tolerating), 'pod')} on such devices"
    yield from places_figures(impact)
    if impact.pod_groups:
        yield f"{would}in use by {counted(len(impact.pod_groups), 'PodGroup')} of unknown size"


def _when(impact: Impact) -> str:
    now, later = len(impact.now), [wave for wave in impact.waves if wave.seconds]
    if not later:
        return ", all at once" if now else ""
    pods = sum(len(wave.pods) for wave in later)
    first = duration(later[0].seconds)
    rest = f"{pods} after {first}" if len(later) == 1 else f"{pods} after {first} to {duration(later[-1].seconds)}"
    return f": {now} at once, {rest}"


def annotation_of(impact: Impact, *, acts: bool, over: Sequence[str], driver: str = "") -> str:
    """Write the figures for the audit log: `name=number`, why it is over the limit, the driver concerned."""
    figures = {
        "devices": impact.devices,
        "pools": impact.pools,
        "allocated": impact.allocated,
        "claims": len(impact.claims),
        "pods": len(impact.pods),
        "now": len(impact.now),
        "later": len(impact.later),
        "tolerating": len(impact.tolerating),
        "unseen": 0,  # as extended resources count; who reads this by position still can
        "kept": len(impact.kept),
        "namespaces": len(impact.namespaces),
        "podGroups": len(impact.pod_groups),
    }
    if impact.extended:
        figures |= {"extended": len(impact.extended)}
    if impact.siblings:
        figures |= {"siblings": len(impact.siblings.devices), "siblingPods": len(impact.siblings.pods)}
    if impact.gangs:
        figures |= {
            "gangs": len(impact.gangs),
            "gangPods": sum(each.evicted for each in impact.gangs),
            "gangSize": sum(each.pods for each in impact.gangs),
            "companions": len(impact.companions),
        }
    if impact.places is not None:
        figures |= {"pendingPods": sum(each.none for each in impact.places)}
    text = " ".join(f"{name}={number}" for name, number in figures.items())
    if not acts:
        text += " simulated"
    if not over:
        return text
    return f"{text}{_OVER}{';'.join(over)}" + (f"{_DRIVER}{driver}" if driver else "")


class Measured(NamedTuple):
    """The impact for the audit log. `over`: why it is too much; `driver`: whose share of devices is, or empty."""

    figures: Mapping[str, int]
    over: tuple[str, ...] = ()
    confirmed: bool = False
    driver: str = ""


def measured_in(annotation: str) -> Measured:
    """Read what `annotation_of` wrote, and if the guard added `confirmed`; an unknown impact has no figures."""
    if annotation.startswith(_UNKNOWN):
        return Measured({})
    figures, _, rest = annotation.partition(_OVER)
    pairs = (word.partition("=") for word in figures.split())
    reasons, *remarks = rest.split(" ")
    over = [each for reason in reasons.split(";") if reason for each in _one_by_one(reason)]
    mark = _DRIVER.lstrip()
    driver = next((word.removeprefix(mark) for word in remarks if word.startswith(mark)), "")
    figured = {name: int(number) for name, _, number in pairs if number}
    return Measured(figured, tuple(over), "confirmed" in remarks, driver)


def _one_by_one(reason: str) -> Iterator[str]:
    """Split `limit:devices,pods` in two."""
    sort, colon, names = reason.partition(":")
    for name in names.split(","):
        yield f"{sort}{colon}{name}"


def first_names(names: Collection[str]) -> str:
    """Write names by their alphabet: the first three, and how many more there are."""
    shown = sorted(names)[:_SHOWN]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def duration(seconds: int) -> str:
    """Write whole seconds, in the largest unit that leaves no rest."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
