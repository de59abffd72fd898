"""A preview as our worker would carry it out: which pods it leaves alone, and which others it evicts with them.

The in-tree controller looks at each pod by itself, so for a taint that it carries out nothing here applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from webhook.api.pods import Pod
from webhook.inventory.matching import Evictor
from webhook.inventory.pod_groups import companions_in, goes_with_all, group_key, keeps_all
from webhook.inventory.preview import Cause, GroupRow, OutcomeReason, PodOutcome, PodRow, Preview, row_order
from webhook.inventory.state import Inventory

Exempt = Callable[[Pod], OutcomeReason | None]


def as_our_worker(inventory: Inventory, preview: Preview, exempt: Exempt) -> Preview:
    """The preview, changed where our worker would do otherwise than the taint alone; `exempt`: why it skips a pod."""
    if all(taint.evictor is not Evictor.OURS for _, taint in preview.taints):
        return preview
    groups = [_group_row(inventory, row, exempt) for row in preview.pod_groups]
    rows = {row.uid: _pod_row(inventory, row, exempt) for row in preview.pods}
    for along in _companions(inventory, list(rows.values()), exempt):
        known = rows.get(along.uid)
        rows[along.uid] = along if known is None else structs.replace(along, devices=known.devices)
    return structs.replace(
        preview,
        pods=tuple(sorted(rows.values(), key=row_order)),
        pod_groups=tuple(sorted(groups, key=row_order)),
    )


def _pod_row(inventory: Inventory, row: PodRow, exempt: Exempt) -> PodRow:
    if row.outcome is not PodOutcome.EVICTED or row.pod is None:
        return row
    reason = exempt(row.pod)
    if reason is None and keeps_all(inventory, row.pod, [inventory.claims[key] for key in row.claims]):
        reason = OutcomeReason.HELD_BY_POD_GROUP
    if reason is None:
        return row
    return structs.replace(row, outcome=PodOutcome.LEFT_ALONE, seconds=None, cause=_because(reason, row))


def _group_row(inventory: Inventory, row: GroupRow, exempt: Exempt) -> GroupRow:
    """A PodGroup that exists keeps its claims; of one that is gone or not known, only the reservation is left."""
    group = inventory.pod_groups.get(f"{row.namespace}/{row.name}")
    if row.outcome is not PodOutcome.EVICTED:
        return row
    if group is None or group.meta.uid != row.uid:
        return structs.replace(row, pods=tuple([key for key in row.pods if exempt(inventory.pods[key]) is None]))
    cause = _because(OutcomeReason.HELD_BY_POD_GROUP, row)
    return structs.replace(row, outcome=PodOutcome.LEFT_ALONE, seconds=None, cause=cause)


def _because(reason: OutcomeReason, row: PodRow | GroupRow) -> Cause:
    return Cause(reason, row.cause.taint)


def _companions(inventory: Inventory, rows: Iterable[PodRow], exempt: Exempt) -> Iterator[PodRow]:
    """Rows of pods that go only because others of their PodGroup do, at the time of the first of those."""
    first: dict[str, PodRow] = {}
    judged: set[str] = set()
    """They have an eviction of their own, carried out or not."""
    for row in sorted(rows, key=row_order):
        if row.outcome in (PodOutcome.EVICTED, PodOutcome.LEFT_ALONE):
            judged.add(row.uid)
        if row.outcome is PodOutcome.EVICTED and row.pod is not None and goes_with_all(inventory, row.pod):
            first.setdefault(group_key(row.pod), row)
    for group, cause in first.items():
        for pod in companions_in(inventory, group):
            if pod.meta.uid not in judged and exempt(pod) is None:
                yield PodRow(
                    pod.meta.namespace,
                    pod.meta.name,
                    pod.meta.uid,
                    PodOutcome.EVICTED,
                    cause.seconds,
                    _because(OutcomeReason.WITH_POD_GROUP, cause),
                    (),
                    (),
                    pod,
                )
