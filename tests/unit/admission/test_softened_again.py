"""A rule that was softened and is sent again: nothing changes, whatever form its author sends it in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import NOW
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, node, tainting
from tests.unit.admission.softened import MARKS, send, softening, stored_softened
from webhook.api.meta import format_time
from webhook.api.rules import EVICTIONS_PER_SECOND, SOFTENED_FROM
from webhook.policy.model import EvictionProfile, PolicyMode, Softening

ALWAYS = softening(Softening.ALWAYS)
LONG_AGO = NOW - timedelta(hours=2)
LATER = NOW + timedelta(minutes=20)


@table(
    "again",
    {
        "server-side apply": tainting(annotations=MARKS, added=LONG_AGO),
        "put, and the server has set the time": tainting(added=NOW),
        "a minute ago": tainting(added=NOW - timedelta(seconds=60)),
        "a minute ahead": tainting(added=NOW + timedelta(seconds=60)),
        "without the mark": stored_softened(added=LONG_AGO, annotations={SOFTENED_FROM: "x"}),
    },
)
@pytest.mark.parametrize("mode", [PolicyMode.ENFORCE, PolicyMode.WARN])
def test_rule_that_is_sent_again_is_what_is_stored(again: Any, mode: PolicyMode) -> None:
    """Also when it would be within the limit by now, or the impact is not known."""
    stored = stored_softened(added=LONG_AGO)
    for options in ({}, {"cluster": UNKNOWN}, {"impact": softening(pods=100)}, {"impact": softening(devices=0)}):
        sent = send(again, stored, mode=mode, **options)
        assert sent.stored["spec"] == stored["spec"]
        assert sent.softened
        assert sent.judged.allowed
        assert sent.remark.endswith("; as before")
        assert not sent.mutated.softened


def test_time_that_the_author_gives_is_kept_if_it_is_later() -> None:
    """An earlier one in a manifest must not start the rule again with each apply."""
    stored = stored_softened(added=LONG_AGO)
    assert send(tainting(added=LATER), stored).time == format_time(LATER)
    earlier = send(tainting(added=LONG_AGO - timedelta(hours=1)), stored)
    assert (earlier.softened, earlier.time) == (True, format_time(LONG_AGO))
    untimed = stored_softened()
    del untimed["spec"]["taint"]["timeAdded"]
    assert send(tainting(added=LATER), untimed).time == format_time(LATER)


def test_rule_without_time_gets_the_stored_one() -> None:
    again = tainting()
    del again["spec"]["taint"]["timeAdded"]
    assert send(again, stored_softened(added=LONG_AGO)).time == format_time(LONG_AGO)


def test_narrower_rule_stays_softened_and_a_wider_one_is_judged() -> None:
    narrower = send(tainting(node(0)), stored_softened(added=NOW))
    assert (narrower.softened, narrower.remark.endswith("; as before")) == (True, True)
    wider = send(tainting(), stored_softened(node(0)))
    assert (wider.softened, wider.mutated.softened, wider.judged.allowed) == (True, True, True)
    other_key = send(tainting(node(0), key="other.example.com/k"), stored_softened(node(0)))
    assert not other_key.softened
    assert send({**tainting({})}, stored_softened(node(0))).judged.code == 403


def test_higher_rate_is_judged_and_softened() -> None:
    profile = (EvictionProfile(rate=5.0),)
    faster = send(tainting(annotations={EVICTIONS_PER_SECOND: "9"}), stored_softened(), eviction=profile)
    assert (faster.softened, faster.mutated.softened, faster.judged.allowed) == (True, True, True)


def test_stored_rule_that_evicts_is_left_alone() -> None:
    """What it did before is not judged again, so it is not softened either."""
    labelled = tainting(annotations={"x": "y"})
    assert send(labelled, tainting(), impact=ALWAYS).mutated.patch == ()


def test_rule_that_is_raised_is_softened() -> None:
    """Intel's WARNING, then CRITICAL."""
    raised = send(tainting(added=LONG_AGO), tainting(effect="NoSchedule", added=LONG_AGO))
    assert (raised.softened, raised.judged.allowed, raised.time) == (True, True, format_time(NOW))


def entry(manager: str, second: int, **fields: Any) -> dict[str, Any]:
    time = f"2026-06-01T11:00:{second:02}Z"
    return {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:spec": {}}, **fields}


def managed(rule: Any, *entries: Any) -> Any:
    return {**rule, "metadata": {**rule["metadata"], "managedFields": list(entries)}}


def test_time_of_a_manager_stays_as_it_is_stored() -> None:
    """The API server takes it back by itself only if no other manager wrote in between."""
    stored = managed(stored_softened(added=LONG_AGO), entry("operator", 1), entry("evict", 2))
    again = managed(tainting(annotations=MARKS, added=LONG_AGO), entry("evict", 2), entry("operator", 9))
    sent = send(again, stored)
    assert sent.stored["metadata"]["managedFields"] == stored["metadata"]["managedFields"]
    same = send(managed(again, *stored["metadata"]["managedFields"]), stored)
    assert [each["path"] for each in same.mutated.patch] == ["/spec/taint/effect"]


@table(
    "entries",
    {
        "another manager": [entry("evict", 2), entry("kubectl", 9)],
        "one more": [entry("evict", 2), entry("operator", 9), entry("kubectl", 9)],
        "other fields": [entry("evict", 2), entry("operator", 9, fieldsV1={"f:spec": {"f:x": {}}})],
        "none": [],
        "of another type": ["text", 7],
    },
)
def test_managers_that_differ_are_left_to_the_server(entries: Any) -> None:
    stored = managed(stored_softened(added=LONG_AGO), entry("operator", 1), entry("evict", 2))
    sent = send(managed(tainting(annotations=MARKS, added=LONG_AGO), *entries), stored)
    assert sent.stored["metadata"]["managedFields"] == entries


def test_managers_of_a_rule_that_is_judged_again_are_left_to_the_server() -> None:
    stored = managed(stored_softened(node(0)), entry("operator", 1))
    sent = send(managed(tainting(), entry("operator", 9)), stored)
    assert (sent.softened, sent.stored["metadata"]["managedFields"]) == (True, [entry("operator", 9)])
