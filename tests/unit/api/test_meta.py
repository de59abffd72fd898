from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from webhook.api.meta import (
    GroupVersionKind,
    GroupVersionResource,
    LabelRequirement,
    NamespacedName,
    ObjectMeta,
    is_being_deleted,
    parse_time,
    time_text,
)

NOON = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        pytest.param("2026-06-01T12:00:00Z", NOON, id="UTC"),
        pytest.param("2026-06-01T14:00:00+02:00", NOON, id="another zone is turned into UTC"),
        pytest.param("2026-06-01T06:30:00-05:30", NOON, id="a zone behind UTC"),
        pytest.param("2026-06-01T12:00:00.999999999Z", NOON, id="fractions are cut, not rounded"),
        pytest.param("2026-06-01T12:00:00,5Z", NOON, id="Go takes a comma for the point"),
        pytest.param("2026-06-01T9:00:00-03:00", NOON, id="Go takes an hour of one digit"),
        pytest.param("2026-06-02T12:00:00+24:00", NOON, id="Go takes an offset of 24 hours"),
        pytest.param("2026-06-01T13:00:00+00:60", NOON, id="Go takes an offset of 60 minutes"),
        pytest.param("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC), id="Go's zero time is a time"),
        pytest.param("", None, id="the empty string is no time"),
        pytest.param("2026-06-01", None, id="a date is no time"),
        pytest.param("2026-06-01T12:00:00", None, id="the zone must not be missing"),
        pytest.param("2026-06-01 12:00:00Z", None, id="a blank is no T"),
        pytest.param("2026-06-01t12:00:00z", None, id="lower case is no T and no Z"),
        pytest.param("2026-06-01T12:00:00Z\n", None, id="nothing may follow"),
        pytest.param(" 2026-06-01T12:00:00Z", None, id="nothing may come before"),
        pytest.param("2026-13-01T12:00:00Z", None, id="there is no thirteenth month"),
        pytest.param("2026-02-30T12:00:00Z", None, id="there is no thirtieth of February"),
        pytest.param("2026-06-01T24:00:00Z", None, id="a day ends at 23:59:59"),
        pytest.param("2026-06-01T12:00:60Z", None, id="leap seconds are none"),
        pytest.param("2026-06-01T12:00:00+25:00", None, id="an offset of 25 hours is none"),
        pytest.param("2026-06-01T12:00:00+00:61", None, id="an offset of 61 minutes is none"),
        pytest.param("2026-06-01T12:00:00+0200", None, id="the offset has a colon"),
        pytest.param("٢٠٢٦-06-01T12:00:00Z", None, id="digits are ASCII"),
        pytest.param("0001-01-01T00:00:00+01:00", None, id="what is before the year 1 cannot be kept"),
        pytest.param("2026-06-01T12:00:00." + "0" * 43 + "Z", NOON, id="64 characters are looked into"),
        pytest.param("2026-06-01T12:00:00." + "0" * 44 + "Z", None, id="absurd lengths are not looked into"),
    ],
)
def test_time_is_read_as_go_reads_it(text: str, time: datetime | None) -> None:
    assert parse_time(text) == time


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2026, 6, 1, 14, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2))), "2026-06-01T12:00:00Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (None, None),
    ],
    ids=["another zone, cut to full seconds", "an early year", "none"],
)
def test_time_is_written_as_kubernetes_does(time: datetime | None, text: str | None) -> None:
    assert time_text(time) == text


def test_resource_reads_like_its_url() -> None:
    assert str(GroupVersionResource("resource.k8s.io", "v1", "resourceslices")) == "resourceslices.v1.resource.k8s.io"
    assert str(GroupVersionResource("", "v1", "pods")) == "pods.v1"
    assert str(NamespacedName("ml", "train")) == "ml/train"


@pytest.mark.parametrize(
    ("value", "deleted"),
    [
        ({"metadata": {"deletionTimestamp": "2026-06-01T12:00:00Z"}}, True),
        ({"metadata": {"deletionTimestamp": ""}}, True),
        ({"metadata": {"deletionTimestamp": None}}, False),
        ({"metadata": {}}, False),
        ({"metadata": None}, False),
        ({"metadata": ["deletionTimestamp"]}, False),
        ({}, False),
        (None, False),
        ("metadata", False),
    ],
    ids=str,
)
def test_object_is_being_deleted_once_it_has_the_time(value: Any, deleted: bool) -> None:  # noqa: FBT001 -- a table's
    assert is_being_deleted(value) is deleted


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        pytest.param("resource.k8s.io/v1", GroupVersionKind("resource.k8s.io", "v1", "X"), id="group and version"),
        pytest.param("v1", GroupVersionKind("", "v1", "X"), id="the core group has no name"),
    ],
)
def test_kind_is_read_from_a_manifest_and_written_back(api_version: str, kind: GroupVersionKind) -> None:
    assert GroupVersionKind.parse(api_version, "X") == kind
    assert kind.api_version == api_version
    assert str(kind) == f"{api_version} X"


@pytest.mark.parametrize(
    ("meta", "shown"),
    [
        pytest.param(ObjectMeta(name="a", generate_name="b-"), "a", id="the name"),
        pytest.param(ObjectMeta(generate_name="b-"), "b-*", id="a prefix ends in a star"),
        pytest.param(ObjectMeta(), "", id="nothing"),
    ],
)
def test_object_is_shown_by_name_or_prefix(meta: ObjectMeta, shown: str) -> None:
    assert meta.display_name == shown


LABELS = {"app": "train", "tier": ""}


@pytest.mark.parametrize(
    ("operator", "key", "values", "expected"),
    [
        ("In", "app", ("serve", "train"), True),
        ("In", "app", ("serve",), False),
        ("In", "none", ("train",), False),
        ("In", "tier", ("",), True),
        ("NotIn", "app", ("serve",), True),
        ("NotIn", "app", ("train",), False),
        ("NotIn", "none", ("train",), True),
        ("Exists", "tier", (), True),
        ("Exists", "none", (), False),
        ("DoesNotExist", "none", (), True),
        ("DoesNotExist", "tier", (), False),
    ],
)
def test_requirement_is_met_by(operator: str, key: str, values: tuple[str, ...], expected: bool) -> None:  # noqa: FBT001
    assert LabelRequirement(key, operator, values).matches(LABELS) is expected
