"""Which facts of docs/development/semantics.md an object touches, so that a comparison can show what it covered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.apiserver.comparison import Verdict
    from tests.apiserver.generator import Case
    from webhook.validation.releases import Release

JSON = Any

_ALWAYS = (
    *(f"T-{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
    *(f"L-{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13)),
    *(f"R-{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 13)),
    *(f"S-{n}" for n in (1, 2, 3, 5)),
    *(f"D-{n}" for n in (1, 2, 3, 6, 7)),
)
_RATCHETS = ("T-12", "T-13", "S-4")


def renews_time(release: Release) -> bool:
    """Whether API servers of this release date a taint again whose effect changes (D-4, D-5)."""
    return release.minor >= 36


def visible_facts(release: Release) -> tuple[str, ...]:
    """The facts up to "Defaults" that a verdict or a stored object of this release can show.

    Not T-11 (what consumers do), L-12 and L-14 to L-17 (allocation, gates), R-9 to R-11 (1.33 and 1.34 only), S-6 to
    S-8 (no verdict), D-8 and D-9 (order and reading); matching is done by no API server.
    """
    renewed = ("D-4", "D-5") if renews_time(release) else ()
    late = ("R-15",) if release.minor >= 37 else ()
    selectors = ("R-9", "R-10", "R-11") if release.class_selectors else ()
    status = ("R-12", "R-14") if release.rule_status else ()
    return (*_ALWAYS, *status, *(_RATCHETS if release.ratchets else ("T-14",)), *renewed, *late, *selectors)


def facts_of(case: Case, verdict: Verdict, old: Mapping[str, JSON] | None) -> set[str]:
    """The ids that this object has to do with."""
    facts: set[str] = set()
    errors = verdict.errors or frozenset()
    if not case.status:
        for taint in taints_of(case.object):
            facts |= _taint_facts(taint, updated=old is not None)
        for _, toleration in tolerations_of(case.object):
            facts |= _toleration_facts(toleration)
        facts |= set(_SHAPES[case.kind](case, errors, old))
    else:
        facts |= {"R-12", "R-14"} if case.kind == "DeviceTaintRule" else {"L-13", "L-9"}
    return facts


def taints_of(value: JSON) -> Iterator[dict[str, JSON]]:
    """Every taint in an object."""
    if isinstance(value, dict):
        if isinstance(value.get("taint"), dict):
            yield value["taint"]
        if isinstance(value.get("taints"), list):
            yield from value["taints"]
        for name in ("spec", "devices", "basic"):
            yield from taints_of(value.get(name))
    elif isinstance(value, list):
        for entry in value:
            yield from taints_of(entry)


def tolerations_of(value: JSON, *, alternative: bool = False) -> Iterator[tuple[bool, dict[str, JSON]]]:
    """Every toleration of a claim or template, and whether it is an alternative's."""
    if isinstance(value, dict):
        if isinstance(value.get("tolerations"), list):
            for toleration in value["tolerations"]:
                yield alternative, toleration
        for name in ("spec", "devices", "requests", "exactly"):
            yield from tolerations_of(value.get(name), alternative=alternative)
        yield from tolerations_of(value.get("firstAvailable"), alternative=True)
    elif isinstance(value, list):
        for entry in value:
            yield from tolerations_of(entry, alternative=alternative)


def _key_facts(key: str) -> set[str]:
    facts: set[str] = set()
    prefix, slash, name = key.rpartition("/")
    if slash:
        facts.add("T-3")
        facts.add("T-5")
    if not key:
        facts.add("T-2")
    if len(name.encode()) >= 63 or not name[-1:].isalnum() or not name[:1].isalnum():
        facts.add("T-4")
    if key.endswith("\n") or not key.isascii() or not prefix.isascii():
        facts.add("T-6")
    return facts


def _taint_facts(taint: dict[str, JSON], *, updated: bool) -> set[str]:
    facts = {"T-1", "T-8", "D-7"} | _key_facts(taint.get("key") or "")
    if taint.get("value"):
        facts.add("T-7")
    time = taint.get("timeAdded")
    facts.add("T-9" if time is not None else "D-1")
    facts.add("D-3" if time is not None else ("D-2" if updated else "D-1"))
    return facts


def _toleration_facts(toleration: dict[str, JSON]) -> set[str]:
    facts = {"L-9"}
    operator, key = toleration.get("operator"), toleration.get("key")
    if key:
        facts.add("L-1")
    facts.add("L-2")
    if operator == "Exists":
        facts.add("L-3")
    elif operator in ("Equal", "", None):
        facts.add("L-4")
        if not key:
            facts.add("L-7")
    if toleration.get("effect"):
        facts.add("L-5")
    if toleration.get("tolerationSeconds") is not None:
        facts.add("L-6")
    if not operator:
        facts.add("D-6")
    return facts


def _rule_facts(case: Case, errors: frozenset[tuple[str, str]], old: Mapping[str, JSON] | None) -> Iterator[str]:
    spec = case.object["spec"]
    if any(field.startswith("metadata") for field, _ in errors) or case.object["metadata"].get("generateName"):
        yield "R-1"
    selector = spec.get("deviceSelector")
    if not selector:
        yield "R-2"
    else:
        yield from (fact for fact, name in (("R-3", "driver"), ("R-4", "pool"), ("R-5", "device")) if name in selector)
        if "" in selector.values():
            yield "R-6"
        if "deviceClassName" in selector:
            yield "R-9"
        if "selectors" in selector:
            yield "R-10" if old is None else "R-11"
    if not spec.get("taint"):
        yield "R-7"
    if case.object.get("status"):
        yield "R-13"
    if old is not None:
        yield from _rule_update_facts(case, old)


def _rule_update_facts(case: Case, old: Mapping[str, JSON]) -> Iterator[str]:
    spec = case.object["spec"]
    if spec != old["spec"]:
        yield "R-8"
    if "resourceVersion" not in case.object["metadata"]:
        yield "R-15"
    before, after = old["spec"]["taint"], spec.get("taint") or {}
    if after.get("effect") == before.get("effect"):
        yield "T-12"
        yield "T-14"
    elif after.get("timeAdded") == before.get("timeAdded"):
        yield "D-4"
        yield "D-5"


def _slice_facts(case: Case, errors: frozenset[tuple[str, str]], old: Mapping[str, JSON] | None) -> Iterator[str]:
    spec = case.object["spec"]
    devices = spec.get("devices") or []
    counts = [len(list(taints_of(device))) for device in devices]
    if any(count >= 4 for count in counts):
        yield "S-1"
    if len(devices) >= 64:
        yield "S-2"
    for device in devices:
        taints = list(taints_of(device))
        if any(taint == other for at, taint in enumerate(taints) for other in taints[:at]):
            yield "T-10"
            break
    if "sharedCounters" in spec:
        yield "S-4"
    if old is None:
        return
    if len(devices) >= 64:
        yield "S-3"
    if spec != old["spec"]:
        yield "S-5"
    if any(counts):
        yield "T-13"
        yield "T-14"
    del errors


def _claim_facts(case: Case, errors: frozenset[tuple[str, str]], old: Mapping[str, JSON] | None) -> Iterator[str]:
    if any(alternative for alternative, _ in tolerations_of(case.object)):
        yield "L-10"
    if len(list(tolerations_of(case.object))) > 16:
        yield "L-8"
    if old is not None and case.object["spec"] != old["spec"]:
        yield "L-11"
    del errors


_SHAPES = {
    "DeviceTaintRule": _rule_facts,
    "ResourceSlice": _slice_facts,
    "ResourceClaim": _claim_facts,
    "ResourceClaimTemplate": _claim_facts,
}
