"""What the worker does unless a flag or the policy says otherwise."""

from __future__ import annotations

from dataclasses import asdict

from webhook.eviction.modes import Mode
from webhook.eviction.ports import WorkerSettings

EXPECTED = {
    "mode": Mode.OBSERVE,
    "in_tree": None,
    "delete_expired": False,
    "workers": 32,
    "planners": 4,
    "condition_seconds": 10.0,
    "settle_seconds": 5.0,
    "replacement_seconds": 5.0,
    "gang_replacement_seconds": 60.0,
    "undeleted_seconds": 60.0,
    "announce_after_seconds": 5.0,
    "events_most": 1000,
    "stop_seconds": 10.0,
    "last_conditions_seconds": 5.0,
    "flush_seconds": 5.0,
    "report_every_seconds": 3600.0,
}


def test_settings_that_docs_and_alerts_rely_on() -> None:
    settings = asdict(WorkerSettings())
    assert {name: settings[name] for name in EXPECTED} == EXPECTED
