"""Claims and templates with more tolerations than the API documents: how much of them is looked at.

A server that knows no limits of its own takes claims with tens of thousands of tolerations. What they cost here must
not depend on how large they are, so they are cut before they are decoded. What was cut off counts as not judged, which
`rulings.not_judged` turns into a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from webhook.api.claims import is_flat
from webhook.api.decode import MAX_ENTRIES
from webhook.api.field import JSON, FieldError, Path
from webhook.validation.claims import tolerations_path
from webhook.validation.documented import TOLERATIONS_MAX, crowded_list_error

LIST_MAX: Final = 64
"""Tolerations of a list that are judged where a list has more than the documented 16."""
OBJECT_MAX: Final = 1024
"""Tolerations of such an object that are judged; also its requests and alternatives."""
# DeviceRequestsMaxSize and FirstAvailableDeviceRequestMaxSize of resource/v1: with 16 tolerations in each list, an
# object within the documented limits has at most 4096 of them, and all are judged.
_REQUESTS_MAX: Final = 32
_ALTERNATIVES_MAX: Final = 8


class _List(NamedTuple):
    """A list of tolerations by the place where it stands, and how long it is."""

    position: int
    alternative: int | None
    flat: bool
    length: int

    def path(self, *, of_template: bool) -> Path:
        return tolerations_path(of_template, self.position, self.alternative, self.flat)


class Excess(NamedTuple):
    """What exceeds the limits in an object. `kept` is the object, or the rest of it if something was cut off."""

    kept: dict[str, Any]
    of_template: bool
    crowded: tuple[_List, ...] = ()
    """The lists that are longer than documented."""
    tolerations: int = 0
    """How many the object has."""
    unjudged: int = 0
    """How many of those were cut off."""
    requests_unjudged: int = 0
    """How many requests and alternatives were cut off."""
    first_unjudged: Path | None = None
    cut: bool = False

    def errors(self) -> Iterator[FieldError]:
        """Yield the documented limits that the object exceeds."""
        for each in self.crowded:
            yield crowded_list_error(each.path(of_template=self.of_template), each.length)


def excess_of(value: JSON, *, of_template: bool) -> Excess | None:
    """Return what exceeds the limits in a claim or template as it was sent; None if it is within them."""
    if not isinstance(value, dict):
        return None
    requests = _requests(value, of_template=of_template)
    modest = len(requests) <= _REQUESTS_MAX and _are_modest(requests)
    bloated = "status" in value and not _is_modest_status(value["status"])
    if modest and not bloated:
        return None
    if bloated:
        # Only the server sets an allocation, and not with the object.
        value = {name: entry for name, entry in value.items() if name != "status"}
    if modest or len(requests) > MAX_ENTRIES:  # the reader refuses such a list
        return Excess(value, of_template, cut=bloated)
    excess = _Cut(of_template=of_template).excess(value, requests)
    return excess._replace(cut=excess.cut or bloated)


def _requests(value: dict[str, Any], *, of_template: bool) -> list[Any]:
    spec: Any = value.get("spec")
    if of_template:
        spec = spec.get("spec") if spec.__class__ is dict else None
    devices = spec.get("devices") if spec.__class__ is dict else None
    requests = devices.get("requests") if devices.__class__ is dict else None
    return requests if requests.__class__ is list else []


def _are_modest(requests: list[Any]) -> bool:
    """Tell whether each request keeps to the limits; what is of another type has no list to speak of.

    Every claim is looked at in this way, so calls are saved.
    """
    for request in requests:
        if request.__class__ is not dict:
            continue
        exactly = request.get("exactly")
        tolerations = (exactly if exactly.__class__ is dict else request).get("tolerations")
        if tolerations.__class__ is list and len(tolerations) > TOLERATIONS_MAX:
            return False
        alternatives = request.get("firstAvailable")
        if alternatives.__class__ is list and (
            len(alternatives) > _ALTERNATIVES_MAX or any(_length(each) > TOLERATIONS_MAX for each in alternatives)
        ):
            return False
    return True


def _is_modest_status(status: Any) -> bool:
    allocation = status.get("allocation") if status.__class__ is dict else None
    devices = allocation.get("devices") if allocation.__class__ is dict else None
    results = devices.get("results") if devices.__class__ is dict else None
    if results.__class__ is not list:
        return True
    return len(results) <= _REQUESTS_MAX and all(_length(each) <= TOLERATIONS_MAX for each in results)


def _length(entry: Any) -> int:
    tolerations = entry.get("tolerations") if entry.__class__ is dict else None
    return len(tolerations) if tolerations.__class__ is list else 0


class _Cut:
    """One pass over the requests of an object, which keeps what is judged."""

    def __init__(self, *, of_template: bool) -> None:
        self._of_template = of_template
        self._crowded: list[_List] = []
        self._tolerations = self._unjudged = 0
        self._asked = 0
        self._first: Path | None = None

    def excess(self, value: dict[str, Any], requests: list[Any]) -> Excess:
        kept = [self._request(position, request) for position, request in enumerate(requests)]
        cut = self._unjudged > 0 or self._asked > OBJECT_MAX
        return Excess(
            _with_requests(value, [each for each in kept if each is not None], of_template=self._of_template)
            if cut
            else value,
            self._of_template,
            tuple(self._crowded),
            self._tolerations,
            self._unjudged,
            max(0, self._asked - OBJECT_MAX),
            self._first,
            cut,
        )

    def _request(self, position: int, request: Any) -> Any:
        """Return what is kept of a request; None is nothing, after which nothing more is kept."""
        if request.__class__ is not dict:
            return request
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
        changed: dict[str, Any] = {}
        if exactly.__class__ is dict:
            changed["exactly"] = self._asking(exactly, position, None, flat=False)
        elif is_flat(request):
            changed = self._asking(request, position, None, flat=True) or {}
        if alternatives.__class__ is list:
            kept = [self._asking(each, position, index, flat=False) for index, each in enumerate(alternatives)]
            changed["firstAvailable"] = [each for each in kept if each is not None]
        return {**request, **changed} if self._asked <= OBJECT_MAX or any(changed.values()) else None

    def _asking(self, entry: Any, position: int, alternative: int | None, *, flat: bool) -> Any:
        """Return what is kept of what is asked for in one place."""
        self._asked += 1
        there = _List(position, alternative, flat, _length(entry))
        if there.length > TOLERATIONS_MAX:
            self._crowded.append(there)
        taken = self._tolerations - self._unjudged
        keeps = min(there.length, LIST_MAX, OBJECT_MAX - taken)
        if self._asked > OBJECT_MAX:
            keeps = 0
        self._tolerations += there.length
        self._unjudged += there.length - keeps
        if self._first is None and (keeps < there.length or self._asked > OBJECT_MAX):
            path = there.path(of_template=self._of_template)
            self._first = path.index(keeps) if keeps < there.length else path
        if self._asked > OBJECT_MAX:
            return None
        return {**entry, "tolerations": entry["tolerations"][:keeps]} if keeps < there.length else entry


def _with_requests(value: dict[str, Any], requests: list[Any], *, of_template: bool) -> dict[str, Any]:
    """Return the object with other requests; the rest is shared with the one that came."""
    outer = value["spec"]
    spec = outer["spec"] if of_template else outer
    spec = {**spec, "devices": {**spec["devices"], "requests": requests}}
    return {**value, "spec": {**outer, "spec": spec} if of_template else spec}
