"""A preview as our worker would carry it out, by its plan: which pods stay, and which others go with those that go.

The in-tree controller looks at each pod by itself, so for a taint that it carries out nothing here applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.eviction.followed_pods import EXEMPTIONS
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import StepReason, later
from webhook.eviction.profiles import Grouping
from webhook.inventory.evictions import NOTHING, Eviction, EvictionReason, Evictions, Without
from webhook.inventory.matching import Evictor
from webhook.inventory.pod_groups import keeps_all
from webhook.inventory.preview import Cause, GroupRow, OutcomeReason, PodOutcome, PodRow, Preview, row_order
from webhook.inventory.scope import EvictionScope
from webhook.inventory.state import Inventory, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.eviction.followed_pods import ProfiledPods
    from webhook.eviction.pod_plan import EvictionPlan

_STAYS: Final = {**EXEMPTIONS, StepReason.GROUP: OutcomeReason.HELD_BY_POD_GROUP}


class _Previewed(Evictions):
    """Evictions by the taints of a preview alone, whatever else is on the devices."""

    def __init__(self, inventory: Inventory, rows: Mapping[str, PodRow]) -> None:
        super().__init__(inventory, EvictionScope(), lambda _: None)
        self._inventory = inventory
        self._rows = rows
        self._claims = {key for row in rows.values() for key in row.claims}

    def holding_group(self, pod: Pod, without: Without = NOTHING) -> str:  # noqa: ARG002 -- nothing is left out
        """Returns the PodGroup that keeps all claims reserved that make the pod go; else an empty text."""
        row = self._rows.get(key_of(pod.meta))
        claims = [] if row is None else [self._inventory.claims[key] for key in row.claims]
        return pod.pod_group if claims and keeps_all(self._inventory, pod, claims) else ""

    def evicts_users_of(self, key: str, without: Without = NOTHING) -> bool:  # noqa: ARG002
        """Tells whether a claim makes its pods go."""
        return key in self._claims


def as_our_worker(inventory: Inventory, preview: Preview, pods: ProfiledPods, now: datetime) -> Preview:
    """Changes the preview where our worker would do otherwise than the taint alone."""
    if all(taint.evictor is not Evictor.OURS for _, taint in preview.taints):
        return preview
    evicted = {
        f"{row.namespace}/{row.name}": row
        for row in preview.pods
        if row.outcome is PodOutcome.EVICTED and row.pod is not None
    }
    hit = {
        key: Eviction(later(now, row.seconds or 0), (EvictionReason(row.cause.taint),)) for key, row in evicted.items()
    }
    seconds = {id(eviction): evicted[key].seconds for key, eviction in hit.items()}
    made = _plan_of(inventory, _Previewed(inventory, evicted), hit, pods, now)
    rows = {row.uid: _pod_row(row, made) for row in preview.pods}
    for each in made.going.values():
        if each.along:
            known = rows.get(each.uid)
            rows[each.uid] = PodRow(
                each.pod.meta.namespace,
                each.pod.meta.name,
                each.uid,
                PodOutcome.EVICTED,
                seconds[id(each.eviction)],
                Cause(OutcomeReason.WITH_POD_GROUP, each.eviction.reasons[0].taint),
                () if known is None else known.devices,
                (),
                each.pod,
            )
    groups = [_group_row(inventory, row, pods) for row in preview.pod_groups]
    return structs.replace(
        preview,
        pods=tuple(sorted(rows.values(), key=row_order)),
        pod_groups=tuple(sorted(groups, key=row_order)),
    )


def _plan_of(
    inventory: Inventory, evictions: Evictions, hit: Mapping[str, Eviction], pods: ProfiledPods, now: datetime
) -> EvictionPlan:
    view = View(
        inventory=inventory,
        evictions=evictions,
        hit=hit,
        profile_of=pods.profile_of,
        gang_of=Grouping(inventory, pods.profile_of).gang_of,
        hold_of=lambda _: None,
        group_of=str,
        exceeded=lambda *_: "",
    )
    return plan(view, Ledger(), None, Moment(now, 0.0))


def _pod_row(row: PodRow, made: EvictionPlan) -> PodRow:
    wait = made.waits.get(row.uid)
    if row.outcome is not PodOutcome.EVICTED or wait is None or row.uid in made.going:
        return row
    return structs.replace(
        row, outcome=PodOutcome.LEFT_ALONE, seconds=None, cause=Cause(_STAYS[wait.reason], row.cause.taint)
    )


def _group_row(inventory: Inventory, row: GroupRow, pods: ProfiledPods) -> GroupRow:
    """A PodGroup that exists keeps its claims; of one that is gone or not known, only the reservation is left."""
    group = inventory.pod_groups.get(f"{row.namespace}/{row.name}")
    if row.outcome is not PodOutcome.EVICTED:
        return row
    if group is None or group.meta.uid != row.uid:
        left = [key for key in row.pods if pods.exemption_of(inventory.pods[key]) is None]
        return structs.replace(row, pods=tuple(left))
    cause = Cause(OutcomeReason.HELD_BY_POD_GROUP, row.cause.taint)
    return structs.replace(row, outcome=PodOutcome.LEFT_ALONE, seconds=None, cause=cause)
