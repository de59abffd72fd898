"""What is said about an evicted pod: its Event, the log line, the metric, and the conditions of its rules."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from webhook.eviction.core import ItemKind, WorkItem
from webhook.eviction.events import PodEventKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.eviction.core import Core
    from webhook.eviction.pod_plan import PodPlan
    from webhook.inventory.evictions import RuleRef

log = logging.getLogger(__name__)


def record_evicted(core: Core, plan: PodPlan, rules: Iterable[RuleRef]) -> None:
    """The pod was evicted for these rules: that is logged, and queued for an Event and for their conditions."""
    for _, name in rules:
        core.queue.add_after(WorkItem(ItemKind.RULE, name), core.deps.settings.condition_seconds)
    delay = (core.deps.clock.now() - plan.eviction.due).total_seconds()
    core.deps.metrics.count_evicted(delay)
    log.info("pod evicted", extra={**log_fields(plan), "delaySeconds": round(delay, 3)})
    core.recorder.record_pod_event(PodEventKind.EVICTED, plan)


def log_fields(plan: PodPlan) -> dict[str, object]:
    """The fields of a log line about a pod."""
    return {"pod": plan.key, "podUID": plan.uid, "reasons": [str(reason) for reason in plan.eviction.reasons]}
