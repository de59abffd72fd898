"""Notices as alerts and as CloudEvents."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, FormatChecker

from tests.unit.notifications.noticing import EARLIER, NOW, make_notice
from webhook.notifications.alerts import alert_of
from webhook.notifications.cloud_events import event_of
from webhook.notifications.notice import NoticeKind

SCHEMA = Draft7Validator(
    json.loads((Path(__file__).parent / "cloudevents-1.0.2.json").read_text()), format_checker=FormatChecker()
)
"""As the specification publishes it: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats."""

every_kind = pytest.mark.parametrize("kind", NoticeKind)


def test_an_alert_has_labels_that_do_not_change_and_texts_that_may() -> None:
    alert = alert_of(make_notice(), "prod-1", NOW)
    assert alert["labels"] == {
        "alertname": "DeviceTaintRuleStopped",
        "severity": "warning",
        "job": "device-taint-webhook",
        "rule": "r",
        "cluster": "prod-1",
    }
    assert alert["annotations"] == {
        "summary": "No pod is evicted for DeviceTaintRule r.",
        "description": "hits 60 pods",
        "driver": "gpu.example.com",
    }
    assert "cluster" not in alert_of(make_notice(), "", NOW)["labels"]
    assert alert_of(make_notice(text="hits 70 pods"), "prod-1", NOW)["labels"] == alert["labels"]


@every_kind
def test_an_alert_ends_by_itself_if_it_is_not_sent_again(kind: NoticeKind) -> None:
    alert = alert_of(make_notice(kind), "", NOW)
    assert alert["startsAt"] == "2026-06-01T11:50:00Z"
    assert alert["endsAt"] == ("2026-06-01T12:04:00Z" if make_notice(kind).lasts else "2026-06-01T12:05:00Z")


def test_what_has_ended_ends_its_alert() -> None:
    assert alert_of(make_notice(ended=NOW), "", NOW + timedelta(hours=1))["endsAt"] == "2026-06-01T12:00:00Z"


@every_kind
@pytest.mark.parametrize("ended", [None, NOW])
@pytest.mark.parametrize("cluster", ["", "prod/1 ä"])
def test_an_event_is_valid_by_the_schema_of_cloud_events(kind: NoticeKind, ended: object, cluster: str) -> None:
    event = event_of(make_notice(kind, ended=ended), cluster)
    assert [error.message for error in SCHEMA.iter_errors(event)] == []
    assert event["type"] == f"io.devicetaint.rule.{kind.value}" + (".ended" if ended else "")
    assert event["subject"] == "devicetaintrules/r"
    assert event["time"] == ("2026-06-01T12:00:00Z" if ended else "2026-06-01T11:50:00Z")
    assert event["data"]["rule"] == {"name": "r", "uid": "uid-of-r"}


def test_the_schema_notices_an_event_without_an_id() -> None:
    event = event_of(make_notice(), "")
    del event["id"]
    assert [error.message for error in SCHEMA.iter_errors(event)] == ["'id' is a required property"]


def test_an_event_that_is_sent_again_has_its_id_and_its_end_has_another() -> None:
    first, again = make_notice(), make_notice(text="hits 70 pods")
    assert event_of(first, "")["id"] == event_of(again, "")["id"]
    others = [
        make_notice(ended=NOW),
        make_notice(name="other"),
        make_notice(started=NOW),
        make_notice(NoticeKind.BLOCKED),
    ]
    identities = {event_of(each, "")["id"] for each in [first, *others]}
    assert len(identities) == 5
    assert event_of(make_notice(ended=NOW), "")["id"] == event_of(make_notice(ended=NOW + timedelta(1)), "")["id"]
    assert EARLIER < NOW
