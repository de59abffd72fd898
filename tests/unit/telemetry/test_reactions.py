"""The figures of reactions."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from webhook.patches.reactions import ReactionOutcome
from webhook.telemetry.workers import ReactionMetrics

PREFIX = "device_taint_webhook_reaction"


def test_each_reaction_has_its_figures_and_one_that_is_gone_has_none() -> None:
    registry = CollectorRegistry()
    metrics = ReactionMetrics(registry)
    assert registry.get_sample_value(f"{PREFIX}_rules_refused") is None, "not known before the first pass"
    limited = ReactionOutcome("xid", "d", 1, 2, 3, 4, 5, 6, 7, "")
    free = ReactionOutcome("other", "d", 0, 0, 0, 0, 0, 6, None, "")
    metrics.show((limited, free), 8)

    def reasons(name: str) -> list[float | None]:
        states = ("active", "quiet", "unpublished", "waiting", "held_back")
        labels = [{"reaction": name, "state": each} for each in states]
        return [registry.get_sample_value(f"{PREFIX}_reasons", each) for each in labels]

    assert reasons("xid") == [1, 2, 3, 4, 5]
    assert reasons("other") == [0] * 5
    assert registry.get_sample_value(f"{PREFIX}_rules_refused") == 8
    metrics.show((free,), 0)
    assert reasons("xid") == [None] * 5
    assert registry.get_sample_value(f"{PREFIX}_rules_refused") == 0
