"""Which notices there are for what is stored of rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.unit.notifications.noticing import EARLIER, LONG_AGO, NOW, eviction, released, rule, softened
from webhook.notifications.notice import NoticeKind
from webhook.notifications.rule_notices import RuleNotices


class Watch:
    """Rules as a watch shows them, one state after the other."""

    def __init__(self, *rules: Any) -> None:
        self._notices = RuleNotices()
        self._notices.begin(rules)
        self._known: dict[str, Any] = {each.meta.name: each for each in rules}
        self.now = NOW

    def shows(self, new: Any) -> Watch:
        self._notices.observe(self._known.get(new.meta.name), new)
        self._known[new.meta.name] = new
        return self

    def loses(self, name: str) -> Watch:
        self._notices.observe(self._known.pop(name), None)
        return self

    def take(self, minutes: float = 0) -> list[tuple[str, str, datetime, datetime | None]]:
        self.now += timedelta(minutes=minutes)
        return [(each.kind.value, each.subject.name, each.started, each.ended) for each in self._notices.take(self.now)]


def test_a_rule_that_stops_is_a_notice_until_it_goes_on() -> None:
    watch = Watch(rule())
    assert watch.take() == []
    assert watch.shows(rule(eviction("Stopped"))).take() == [("stopped", "r", EARLIER, None)]
    assert watch.take(60) == []
    assert watch.shows(rule(eviction("Evicting"))).take() == [("stopped", "r", EARLIER, watch.now)]
    assert watch.take(60) == []


def test_a_rule_that_is_deleted_ends_what_lasts() -> None:
    watch = Watch(rule(eviction("Stopped")))
    assert watch.take() == [("stopped", "r", EARLIER, None)]
    assert watch.loses("r").take() == [("stopped", "r", EARLIER, NOW)]


def test_a_rule_that_is_created_again_under_its_name_is_another_one() -> None:
    watch = Watch(rule(eviction("Stopped")))
    watch.take()
    later = NOW - timedelta(minutes=1)
    watch.shows(rule(eviction("Stopped", later), uid="u2"))
    assert watch.take() == [("stopped", "r", EARLIER, NOW), ("stopped", "r", later, None)]


def test_a_text_that_changes_is_the_same_notice_with_another_text() -> None:
    watch = Watch(rule(eviction("Stopped")))
    watch.take()
    assert watch.shows(rule(eviction("Stopped", message="hits 70 pods"))).take() == [("stopped", "r", EARLIER, None)]


def test_a_rule_is_blocked_once_it_was_for_a_minute_without_a_break() -> None:
    watch = Watch(rule())
    assert watch.shows(rule(eviction("Blocked"))).take() == []
    since = watch.now
    assert watch.take(0.9) == []
    watch.shows(rule(eviction("Blocked", message="2 blocked"))).take()
    assert watch.take(0.1) == [("blocked", "r", since, None)]
    assert watch.take(10) == []
    assert watch.shows(rule(eviction("Evicting"))).take() == [("blocked", "r", since, watch.now)]


def test_a_rule_that_is_blocked_for_a_moment_is_no_notice() -> None:
    watch = Watch(rule())
    for _ in range(5):
        assert watch.shows(rule(eviction("Blocked"))).take(0.5) == []
        assert watch.shows(rule(eviction("Evicting"))).take(0.4) == []
    assert watch.take(60) == []


def test_a_rule_that_was_softened_is_a_notice_once() -> None:
    watch = Watch()
    assert watch.shows(softened()).take() == [("softened", "r", EARLIER, None)]
    assert watch.shows(softened(owner="ops")).take() == []
    assert watch.loses("r").take() == []


def test_released_devices_are_a_notice_each_time() -> None:
    watch = Watch(rule(released(status="False", reason="InUse")))
    assert watch.take() == []
    assert watch.shows(rule(released())).take() == [("released", "r", EARLIER, None)]
    assert watch.shows(rule(released(status="False", reason="InUse"))).take() == []
    assert watch.shows(rule(released(NOW))).take() == [("released", "r", NOW, None)]


def test_a_rule_that_selects_no_device_releases_none() -> None:
    assert Watch(rule(released(reason="NoDevices"))).take() == []


def test_a_new_leader_takes_up_what_lasts_and_what_is_news() -> None:
    rules = [
        rule(eviction("Stopped", LONG_AGO), name="stopped", uid="u1"),
        rule(released(LONG_AGO), name="old", uid="u2"),
        rule(released(), name="new", uid="u3"),
        softened(name="soft-old", uid="u4", added=LONG_AGO),
        softened(name="soft-new", uid="u5"),
    ]
    assert sorted(Watch(*rules).take()) == [
        ("released", "new", EARLIER, None),
        ("softened", "soft-new", EARLIER, None),
        ("stopped", "stopped", LONG_AGO, None),
    ]


def test_a_rule_that_comes_with_an_old_time_is_news_all_the_same() -> None:
    assert Watch().shows(softened(added=LONG_AGO)).take() == [("softened", "r", NOW, None)]


@pytest.mark.parametrize("reason", ["Evicting", "Waiting", "Limited", "Held", "Paused", "Completed", "ObserveOnly"])
def test_what_goes_its_way_is_no_notice(reason: str) -> None:
    watch = Watch(rule(eviction(reason)))
    assert watch.take() == []
    assert watch.take(60) == []


def test_a_notice_has_the_texts_of_the_condition_and_of_the_taint() -> None:
    notices = RuleNotices()
    notices.begin([rule(eviction("Stopped"))])
    [notice] = notices.take(NOW)
    assert (notice.kind, notice.text, notice.severity.value) == (NoticeKind.STOPPED, "hits 60 pods", "warning")
    assert dict(notice.details) == {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "device": "gpu-0",
        "taintKey": "a.example.com/x",
        "effect": "NoSchedule",
    }


def test_another_process_gives_the_same_notice_the_same_identity() -> None:
    def identity() -> str:
        notices = RuleNotices()
        notices.begin([rule(eviction("Stopped"))])
        return next(notices.take(NOW)).identity

    assert identity() == identity()
