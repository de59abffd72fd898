"""Rules and claims as the audit log has them, version by version: was a device called released while it was held?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from tests.controlplane.plane import ControlPlane

Json = dict[str, Any]

RELEASED: Final = "devicetaint.io/Released"
RECORDED: Final = [
    {
        "level": "RequestResponse",
        "verbs": ["create", "update", "patch", "delete"],
        "resources": [
            {
                "group": "resource.k8s.io",
                "resources": ["resourceclaims", "resourceclaims/status", "devicetaintrules", "devicetaintrules/status"],
            }
        ],
    },
    {"level": "None"},
]
"""For the audit policy: each answer has the whole object, with its version, and versions count for all kinds."""


class Period(NamedTuple):
    """From one version to the next, as far as it is known; times are when requests came."""

    begin: int
    end: float
    since: datetime
    until: datetime | None


class TruePeriod(NamedTuple):
    """A rule says of this generation that its devices are released."""

    rule: str
    selector: Json
    period: Period


class HeldPeriod(NamedTuple):
    """A claim holds a device."""

    claim: str
    results: list[Json]
    period: Period

    @property
    def tolerates(self) -> bool:
        """Whether schedulers may allocate its devices in spite of the taint."""
        return any(each.get("tolerations") for each in self.results)


class Overlap(NamedTuple):
    """A device was called released while it was held."""

    true: TruePeriod
    held: HeldPeriod

    @property
    def sneaked(self) -> bool:
        """Whether the allocation came when the rule said so already."""
        return self.held.period.begin > self.true.period.begin

    @property
    def seconds(self) -> float:
        """From the later of the two requests to the one that ended it; infinite if none did."""
        ends = [each for each in (self.true.period.until, self.held.period.until) if each is not None]
        begin = max(self.true.period.since, self.held.period.since)
        return max((min(ends) - begin).total_seconds(), 0.0) if ends else math.inf


class _State(NamedTuple):
    version: int
    at: datetime
    object: Json


class Record:
    """What has happened so far."""

    def __init__(self, plane: ControlPlane) -> None:
        self._states: dict[tuple[str, str], list[_State]] = defaultdict(list)
        """By resource and uid."""
        self._gone: dict[tuple[str, str], datetime] = {}
        for event in plane.audit_events():
            self._add(event)
        for states in self._states.values():
            states.sort()

    def _add(self, event: Json) -> None:
        answer, about = event.get("responseObject"), event["objectRef"]
        if event["responseStatus"]["code"] >= 300 or not answer or about["resource"] not in _PERIODS:
            return
        at = datetime.fromisoformat(event["requestReceivedTimestamp"])
        metadata = answer.get("metadata", {})
        uid = metadata.get("uid") or answer.get("details", {}).get("uid")
        key = about["resource"], uid
        ended = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        if (event["verb"] == "delete" and "deletionTimestamp" not in metadata) or ended:
            self._gone[key] = at
        if "resourceVersion" in metadata and not (event["verb"] == "delete" and key in self._gone):
            self._states[key].append(_State(int(metadata["resourceVersion"]), at, answer))

    def _periods(self, resource: str) -> Iterable[tuple[Json, Period]]:
        for (kind, uid), states in self._states.items():
            if kind != resource:
                continue
            gone = self._gone.get((kind, uid))
            for state, later in zip(states, [*states[1:], None], strict=True):
                end = math.inf if later is None else later.version
                yield state.object, Period(state.version, end, state.at, gone if later is None else later.at)

    def true_periods(self) -> list[TruePeriod]:
        """Periods of one rule that follow each other are one."""
        found: list[TruePeriod] = []
        for rule, period in self._periods("devicetaintrules"):
            if not _says_released(rule):
                continue
            name, selector = rule["metadata"]["name"], rule["spec"].get("deviceSelector", {})
            last = found[-1] if found else None
            if last is not None and last[:2] == (name, selector) and last.period.end == period.begin:
                last_period = last.period
                found[-1] = TruePeriod(
                    name, selector, Period(last_period.begin, period.end, last_period.since, period.until)
                )
            else:
                found.append(TruePeriod(name, selector, period))
        return found

    def held_periods(self) -> list[HeldPeriod]:
        """Likewise, of claims that are allocated; deallocated ones and those that are gone hold nothing."""
        found: list[HeldPeriod] = []
        for claim, period in self._periods("resourceclaims"):
            allocation = claim.get("status", {}).get("allocation")
            if not allocation:
                continue
            name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
            results = allocation["devices"]["results"]
            last = found[-1] if found else None
            if last is not None and last.claim == name and last.period.end == period.begin:
                first = last.period
                found[-1] = HeldPeriod(name, results, Period(first.begin, period.end, first.since, period.until))
            else:
                found.append(HeldPeriod(name, results, period))
        return found

    def overlaps(self) -> list[Overlap]:
        """All of them; a claim that was deleted before the rule said so holds nothing."""
        found = []
        held = self.held_periods()
        for true in self.true_periods():
            for each in held:
                if not any(_selects(true.selector, result) for result in each.results):
                    continue
                if each.period.end <= true.period.begin or each.period.begin >= true.period.end:
                    continue
                if each.period.until is not None and each.period.until < true.period.since:
                    continue
                if true.period.until is not None and true.period.until < each.period.since:
                    continue
                found.append(Overlap(true, each))
        return found


_PERIODS: Final = frozenset({"devicetaintrules", "resourceclaims"})


def _says_released(rule: Json) -> bool:
    return any(
        each["type"] == RELEASED
        and each["status"] == "True"
        and each["observedGeneration"] == rule["metadata"]["generation"]
        for each in rule.get("status", {}).get("conditions", ())
    )


def _selects(selector: Json, result: Json) -> bool:
    return all(result[field] == value for field, value in selector.items())
