"""What all APIs of Kubernetes share: names of resources, object metadata, times, and label selectors.

Source: apimachinery/pkg/apis/meta/v1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.api.remembered import remembered

if TYPE_CHECKING:
    from webhook.api.field import JSON


GROUP: Final = "resource.k8s.io"
OWN_GROUP: Final = "devicetaint.io"
SERVED_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions of GROUP in which Kubernetes 1.33 to 1.38 serve claims, templates, slices and classes; newest first."""
RULE_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")
"""The same for DeviceTaintRules."""
FLAT_VERSIONS: Final = frozenset({"v1beta1", "v1alpha3"})
"""Versions whose requests have no level `exactly`, and whose devices have a level `basic`."""


class NamespacedName(NamedTuple):
    """The name of an object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupVersionResource(NamedTuple):
    """A resource as the API server addresses it; `resource` is the plural, in lower case."""

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.version}.{self.group}" if self.group else f"{self.resource}.{self.version}"


class GroupVersionKind(NamedTuple):
    """A kind as a manifest names it."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """`group/version`, or the bare version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @classmethod
    def parse(cls, api_version: str, kind: str) -> GroupVersionKind:
        """From the two fields of a manifest."""
        group, slash, version = api_version.rpartition("/")
        return cls(group if slash else "", version, kind)

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of `metadata` that decisions look at, by its names in JSON. Empty text means the field is missing."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = {}

    @property
    def display_name(self) -> str:
        """The name; or the prefix the server will complete, marked with a star."""
        if self.name or not self.generate_name:
            return self.name
        return f"{self.generate_name}*"


# Go's time.RFC3339 as encoding/json accepts it. ASCII digits only.
_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,][0-9]+)?(?:(Z)|([+-])([0-9]{2}):([0-9]{2}))"
)


def is_being_deleted(value: JSON) -> bool:
    """Return whether an object as JSON has a deletionTimestamp: it is gone once its finalizers are."""
    meta = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(meta, dict) and meta.get("deletionTimestamp") is not None


A_TIME: Final = 'a time like "2026-01-31T12:00:00Z" (RFC 3339)'
"""What was expected where `parse_time` finds none."""
YEARS: Final = (1970, 9000)
"""The years of times to which any span may be added."""


@remembered(4096)
def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time in UTC, cut to full seconds as the API server stores it; None if it is not one (T-9)."""
    if len(text) > 64:
        return None
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        time = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if match[7] is not None:
            return time
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 60:  # Go's own bounds for a zone offset; Python's zones end before 24 hours
            return None
        offset = timedelta(hours=hours, minutes=minutes)
        return time + offset if match[8] == "-" else time - offset
    except (ValueError, OverflowError):
        return None


def changed_at(metadata: Mapping[str, JSON], field: str) -> datetime | None:
    """When a field was last written, by the managers who own it; else when the object was created; None if unknown.

    `field` is one step of the path, as `data`. Source: k8s.io/apimachinery/pkg/apis/meta/v1 (`ManagedFieldsEntry`).
    """
    entries, step = metadata.get("managedFields"), f'"f:{field}"'
    times = [
        parse_time(str(entry.get("time")))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and step in json.dumps(entry.get("fieldsV1"))
    ]
    return max(filter(None, times), default=parse_time(str(metadata.get("creationTimestamp"))))


def format_time(time: datetime) -> str:
    """The time as Kubernetes writes it: UTC, full seconds, `Z`."""
    return f"{time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def time_text(time: datetime | None) -> str | None:
    """Return a time as `format_time` does; None stays None."""
    return None if time is None else format_time(time)


# --- label selectors -------------------------------------------------------------------------------


class LabelRequirement(msgspec.Struct, frozen=True):
    """One of `matchExpressions`; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it. NotIn and DoesNotExist also hold without the label."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


class LabelSelector(msgspec.Struct, frozen=True):
    """Both parts of a selector, as requirements: an entry of `matchLabels` is an In with one value."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all requirements are met; an empty selector selects everything."""
        return all(requirement.matches(labels) for requirement in self.requirements)
