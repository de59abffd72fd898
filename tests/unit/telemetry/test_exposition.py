"""/metrics is what it was, byte by byte: names, help, types, labels, what is there from the start, and the order."""

from __future__ import annotations

import sys

import pytest

from tests.unit.telemetry.exposition import EXPOSITION, exposition


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other figures of the process")
def test_exposition_is_the_recorded_one() -> None:
    assert exposition().splitlines() == EXPOSITION.read_text().splitlines()
