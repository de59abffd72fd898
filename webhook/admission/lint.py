"""Advice that needs no cluster: objects that are valid but probably not what their author means.

Every finding is a warning with a stable code; `explain/codes.md` explains each. What an update left
unchanged is not reported again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from webhook.admission.impact_text import on_missing_selector
from webhook.api.claims import CLAIMING, DeviceRequest, ResourceClaim, ResourceClaimTemplate
from webhook.api.field import FieldError, Finding, Path, Severity, invalid
from webhook.api.meta import OWN_GROUP
from webhook.api.patches import ResourceSlicePatch
from webhook.api.remembered import remembered
from webhook.api.rules import NOTED_ANNOTATIONS, RULE_ANNOTATIONS, DeviceSelector, DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE, DeviceTaint, DeviceToleration
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, toleration_lists
from webhook.validation.documented import TOLERATIONS_MAX
from webhook.validation.formats import METADATA
from webhook.validation.patches import DEVICES
from webhook.validation.rules import SELECTOR, TAINT
from webhook.validation.slices import SPEC as SLICE_SPEC
from webhook.validation.slices import taints_path

MAX_SECONDS: Final = 9_223_372_036
"""The in-tree controller counts nanoseconds in 64 bits; more seconds overflow and may evict at once (E-10)."""
_POSITION: Final = re.compile(r"\[[0-9]+\]")
CLOCK_SKEW: Final = timedelta(seconds=60)
_ACTING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
_KNOWN_EFFECTS: Final = _ACTING | {NONE}
_RESERVED: Final = ("kubernetes.io", "k8s.io")
_KNOWN_ANNOTATIONS: Final = RULE_ANNOTATIONS | NOTED_ANNOTATIONS


def lint(new: object, old: object | None, now: datetime, servers: ServerFacts = UNKNOWN) -> Iterator[Finding]:
    """Yield advice on an object, except what already applied to its stored form."""
    findings = _lint(new, now, servers)
    if old is None:
        yield from findings
        return
    if isinstance(new, CLAIMING):
        return  # their specs are immutable
    if isinstance(new, DeviceTaintRule) and isinstance(old, DeviceTaintRule) and _acts_otherwise(new, old):
        yield from findings  # what was harmless before may not be so now
        return
    known: set[tuple[str | None, str, str]] | None = None
    for finding in findings:
        if known is None:
            known = {_identity(before) for before in _lint(old, now, servers)}
        if _identity(finding) not in known:
            yield finding


def _acts_otherwise(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    return new.effective_effect != old.effective_effect


def _identity(finding: Finding) -> tuple[str | None, str, str]:
    # Without positions: a device that is inserted must not make all those behind it news.
    return finding.code, _POSITION.sub("[]", finding.error.field), str(finding.error.bad_value)


def _lint(value: object, now: datetime, servers: ServerFacts) -> Iterator[Finding]:
    match value:
        case DeviceTaintRule():
            yield from _rule(value, now, servers)
        case ResourceClaim():
            yield from lint_of_requests(SPEC, value.requests, servers)
        case ResourceClaimTemplate():
            yield from lint_of_requests(TEMPLATE_SPEC, value.requests, servers)
        case ResourceSlice():
            yield from _slice(value, now)
        case ResourceSlicePatch():
            for position, taint in enumerate(value.taints):
                yield from _taint(DEVICES.child("taints").index(position), taint, now)
            if value.filter is None or value.filter.empty:
                yield advice("DT011", DEVICES.child("filter"), None, "is empty: the patch applies to every device")
        case _:
            pass


def advice(code: str, path: Path, value: object, text: str) -> Finding:
    """Make a warning with its code."""
    return Finding(
        Severity.WARN, FieldError(invalid(path, value, text).type, path, value, text, declarative=True), code
    )


# --- rules and taints ---------------------------------------------------------------------------


def _rule(rule: DeviceTaintRule, now: datetime, servers: ServerFacts) -> Iterator[Finding]:
    selector = rule.selector
    effect = rule.effective_effect
    if selector is None:
        yield advice("DT012", SELECTOR, None, f"is missing: the rule {on_missing_selector(servers)}")
    elif selector.empty:
        text = "is empty and selects every device of every driver"
        if effect == NO_EXECUTE:
            text += "; all pods that use one are evicted"
        if not servers.warns_of_empty:
            yield advice("DT011", SELECTOR, None, text)
    else:
        yield from _selector(selector)
    taint = rule.taint if effect == rule.taint.effect else structs.replace(rule.taint, effect=effect)
    yield from _taint(TAINT, taint, now)
    yield from _extras(TAINT, rule.taint)
    for name in rule.meta.annotations:
        if name.startswith(f"{OWN_GROUP}/") and name not in _KNOWN_ANNOTATIONS:
            path = METADATA.child("annotations").key(name)
            known = ", ".join(sorted(known.partition("/")[2] for known in RULE_ANNOTATIONS))
            yield advice("DT018", path, name, f"is not known here; known are {known}")


def _selector(selector: DeviceSelector) -> Iterator[Finding]:
    if selector.driver is not None and selector.driver != selector.driver.lower():
        text = "has upper case, which drivers' names should not have; the match is exact"
        yield advice("DT014", SELECTOR.child("driver"), selector.driver, text)
    if selector.device_class_name is not None:
        yield _retired(selector, "deviceClassName")
    if selector.selectors:
        yield _retired(selector, "selectors")
    for name, _ in selector.unknown:
        text = "is not known here: what it selects cannot be judged and counts as every device"
        yield advice("DT015", SELECTOR.child(name), name, text)


def _retired(selector: DeviceSelector, field: str) -> Finding:
    text = "is dropped by servers from 1.35 on"
    if selector.driver is None and selector.pool is None and selector.device is None and not selector.unknown:
        text += ", which leaves an empty selector: every device"
    return advice("DT016", SELECTOR.child(field), field, f"{text}; use driver, pool, device")


def _slice(value: ResourceSlice, now: datetime) -> Iterator[Finding]:
    soon = now + CLOCK_SKEW
    if any(_looks_odd(taint, soon) for taint in value.distinct_taints):
        for position, device in enumerate(value.devices):
            for index, taint in enumerate(device.taints):
                if _looks_odd(taint, soon):
                    path = taints_path(position, device).index(index)
                    yield from _taint(path, taint, now, published=True)
                    yield from _extras(path, taint)
    for position, entry in enumerate(value.slice_taints):
        path = SLICE_SPEC.child("taints").index(position).child("taint")
        yield from _taint(path, entry.taint, now, published=True)
        yield from _extras(path, entry.taint)


def _looks_odd(taint: DeviceTaint, soon: datetime) -> bool:
    """Tell whether there may be a finding, checked without building a path: slices have hundreds of taints."""
    time = taint.time_added
    return (
        (time is not None and time > soon)
        or taint.effect not in _KNOWN_EFFECTS
        or taint.extras is not None
        or _reserved_domain(taint.key) is not None
    )


def _taint(path: Path, taint: DeviceTaint, now: datetime, *, published: bool = False) -> Iterator[Finding]:
    """Yield advice on a taint; `published`: by a driver, which publishes it again and reads no warning."""
    domain = _reserved_domain(taint.key)
    if domain:
        text = f"is in {domain}, which is reserved for Kubernetes itself; use a domain of yours"
        yield advice("DT005", path.child("key"), taint.key, text)
    elif not published and taint.key and "/" not in taint.key:
        text = "has no domain and may clash with others; put one of yours before it, as in example.com/key"
        yield advice("DT019", path.child("key"), taint.key, text)
    if taint.effect and taint.effect not in _KNOWN_EFFECTS:
        text = "is not known and acts as None: nothing is kept away or evicted"
        yield advice("DT006", path.child("effect"), taint.effect, text)
    time = taint.time_added
    if time is None:
        return
    if time > now + CLOCK_SKEW:
        text = "is in the future: evictions wait until then"
        yield advice("DT007", path.child("timeAdded"), time.isoformat(), text)
    elif not published and taint.effect == NO_EXECUTE and time < now - CLOCK_SKEW:
        seconds = int((now - time).total_seconds())
        text = f"is {seconds} s in the past: tolerationSeconds up to that are already over, "
        text += "and those pods are evicted at once"
        yield advice("DT008", path.child("timeAdded"), time.isoformat(), text)


def _extras(path: Path, taint: DeviceTaint) -> Iterator[Finding]:
    extras = taint.extras
    if extras is None:
        return
    for name, annotation, value in (
        ("data", "data", extras.data),
        ("description", "description", extras.description),
        ("evictionsPerSecond", "evictions-per-second", extras.evictions_per_second),
    ):
        if value is not None:
            text = f"is dropped by every released server; on a rule use annotation {OWN_GROUP}/{annotation}"
            yield advice("DT017", path.child(name), name, text)


@remembered(4096)
def _reserved_domain(key: str) -> str | None:
    prefix, slash, _ = key.rpartition("/")
    if not slash:
        return None
    for domain in _RESERVED:
        if prefix == domain or prefix.endswith(f".{domain}"):
            return domain
    return None


# --- tolerations --------------------------------------------------------------------------------


def lint_of_requests(
    spec: Path, requests: tuple[DeviceRequest, ...], servers: ServerFacts = UNKNOWN
) -> Iterator[Finding]:
    """Yield advice on the tolerations of all requests and alternatives. `spec` is SPEC or TEMPLATE_SPEC."""
    for path, tolerations in toleration_lists(spec, requests):
        yield from tolerations_lint(path, tolerations, servers)


def tolerations_lint(
    path: Path, tolerations: Sequence[DeviceToleration], servers: ServerFacts = UNKNOWN
) -> Iterator[Finding]:
    """Yield advice on one list of tolerations."""
    keys = set()
    for position, toleration in enumerate(tolerations):
        keys.add(toleration.key)
        if not _is_plain(toleration):
            yield from _toleration(path.index(position), toleration, servers)
    # Longer lists are not compared pair by pair, and different keys have nothing to compare.
    if len(tolerations) <= TOLERATIONS_MAX and (len(keys) < len(tolerations) or "" in keys):
        yield from _redundant(path, tolerations)


def _is_plain(toleration: DeviceToleration) -> bool:
    """Tell whether there is no finding on a toleration by itself, checked without building a path."""
    seconds = toleration.toleration_seconds
    counted = seconds is None or (toleration.effect == NO_EXECUTE and 0 < seconds <= MAX_SECONDS)
    return counted and toleration.effect in _ACTING and _reserved_domain(toleration.key) is None


def _redundant(path: Path, tolerations: Sequence[DeviceToleration]) -> Iterator[Finding]:
    for position, toleration in enumerate(tolerations):
        at = path.index(position)
        first = tolerations.index(toleration)
        if first != position:
            yield advice("DT003", at, position, f"repeats entry {first}")
            continue
        other = _shadow(tolerations, position)
        if other is not None:
            yield advice("DT004", at, position, f"adds nothing to entry {other}, which tolerates all that it does")


def _shadow(tolerations: Sequence[DeviceToleration], position: int) -> int | None:
    """Return the entry that makes another one superfluous; of two that say the same, the second is superfluous."""
    toleration = tolerations[position]
    for other, candidate in enumerate(tolerations):
        if (
            candidate != toleration
            and shadows(candidate, toleration)
            and (other < position or not shadows(toleration, candidate))
        ):
            return other
    return None


def _toleration(at: Path, toleration: DeviceToleration, servers: ServerFacts) -> Iterator[Finding]:
    seconds = toleration.toleration_seconds
    if not toleration.effect and not servers.empty_effect_protects:
        text = "is empty: allocation takes that for all effects, but in-tree eviction does not; name NoExecute too"
        yield advice("DT001", at.child("effect"), "", text)
    elif toleration.effect == NONE:
        yield advice("DT013", at.child("effect"), NONE, "is tolerated by everyone: the entry has no effect")
    elif toleration.effect not in ("", NO_EXECUTE) and seconds is not None:
        text = f"has no meaning with effect {toleration.effect}; only NoExecute counts seconds"
        yield advice("DT002", at.child("tolerationSeconds"), seconds, text)
    if seconds is not None and seconds > MAX_SECONDS and toleration.effect in ("", NO_EXECUTE):
        text = f"overflows in the in-tree controller, which may evict at once; at most {MAX_SECONDS}, or omit it"
        yield advice("DT009", at.child("tolerationSeconds"), seconds, text)
    elif seconds is not None and seconds <= 0 and toleration.effect in ("", NO_EXECUTE):
        text = "gives no time: the pod is evicted at once, also beside entries with more seconds"
        yield advice("DT010", at.child("tolerationSeconds"), seconds, text)
    domain = _reserved_domain(toleration.key)
    if domain:
        text = f"is in {domain}: taints of nodes are tolerated in the pod, not in a claim"
        yield advice("DT005", at.child("key"), toleration.key, text)


def shadows(wide: DeviceToleration, narrow: DeviceToleration) -> bool:
    """Tell whether `narrow` changes nothing beside `wide`.

    `wide` must match every taint that `narrow` does. For NoExecute the smallest seconds win and one without
    seconds wins over all (E-10); in-tree eviction looks only at entries that name NoExecute (E-9), so an empty
    effect shadows those never.
    """
    if wide.key not in ("", narrow.key):
        return False
    if wide.operator != EXISTS and (narrow.operator == EXISTS or wide.value != narrow.value):
        return False
    if wide.effect != narrow.effect and (wide.effect or narrow.effect == NO_EXECUTE):
        return False
    if narrow.effect not in ("", NO_EXECUTE) or wide.toleration_seconds is None:
        return True
    # Negative seconds count as none.
    return narrow.toleration_seconds is not None and wide.toleration_seconds <= max(narrow.toleration_seconds, 0)
