"""What both sources tell under faults is what they told: problems, remarks, contexts, metrics, log lines and waits."""

from __future__ import annotations

from tests.unit.certificates.faults import FAULTS, report


def test_sources_tell_of_each_fault_what_they_told() -> None:
    """`python -m tests.unit.certificates.faults` rewrites the file."""
    assert report().splitlines() == FAULTS.read_text().splitlines()
