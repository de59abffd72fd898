"""What has to be written and deleted."""

from __future__ import annotations

from tests.unit.reports.finding import make_finding
from webhook.reports.changes import StoredReport, changes
from webhook.reports.objects import ReportId, report_objects

[WANTED] = report_objects([make_finding()])
HERE = WANTED.identity
GONE = ReportId("train", "device-taint-webhook-a3")


def stored(digest: str = WANTED.digest, uid: str = "u", generation: int = 1) -> StoredReport:
    return StoredReport(uid, generation, digest)


def test_what_is_stored_as_it_should_be_is_not_written() -> None:
    assert changes([WANTED], {HERE: stored()}, {}) == ((), ())


def test_what_is_missing_or_different_is_written() -> None:
    assert changes([WANTED], {}, {}).write == (WANTED,)
    assert changes([WANTED], {HERE: stored("other")}, {}).write == (WANTED,)


def test_what_has_no_finding_any_more_is_deleted_by_its_uid() -> None:
    found = stored(uid="old")
    assert changes([WANTED], {HERE: stored(), GONE: found}, {}) == ((), ((GONE, found),))


def test_what_another_writer_has_edited_is_written_again() -> None:
    assert changes([WANTED], {HERE: stored(generation=3)}, {HERE: stored(generation=2)}).write == (WANTED,)
    assert changes([WANTED], {HERE: stored(generation=2)}, {HERE: stored(generation=2)}).write == ()
    # created again by another leader, whose generations say nothing about ours
    assert changes([WANTED], {HERE: stored(uid="new")}, {HERE: stored(generation=2)}).write == ()
