"""What has to be written so that the stored reports are those of the last pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.reports.objects import ReportId, ReportObject


class StoredReport(NamedTuple):
    """What is known of an object of ours in the cluster."""

    uid: str
    generation: int
    """Moves with each change of the results."""
    digest: str
    """The annotation; empty without one."""


class ReportChanges(NamedTuple):
    """Objects to write, and objects to delete, by UID."""

    write: tuple[ReportObject, ...]
    delete: tuple[tuple[ReportId, StoredReport], ...]


def changes(
    wanted: Iterable[ReportObject],
    stored: Mapping[ReportId, StoredReport],
    written: Mapping[ReportId, StoredReport],
) -> ReportChanges:
    """What differs. `written`: the objects as this process wrote them last, so that edits of others are noticed."""
    by_id = {each.identity: each for each in wanted}
    write = [each for identity, each in by_id.items() if not _holds(each, stored.get(identity), written.get(identity))]
    delete = [(identity, found) for identity, found in stored.items() if identity not in by_id]
    return ReportChanges(tuple(write), tuple(sorted(delete)))


def _holds(wanted: ReportObject, stored: StoredReport | None, written: StoredReport | None) -> bool:
    if stored is None or stored.digest != wanted.digest:
        return False
    return written is None or written.uid != stored.uid or written.generation == stored.generation
