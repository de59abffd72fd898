"""For tests that run a process in this one."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def process_settings() -> Iterator[None]:
    """Logging and the collector are given back as they were: other tests count what is held."""
    root, ours = logging.getLogger(), logging.getLogger("webhook")
    before = root.handlers[:], root.level, ours.level, logging._srcfile, gc.get_threshold()
    flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    yield
    root.handlers[:], logging._srcfile = before[0], before[3]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags
    logging.captureWarnings(capture=False)
    gc.unfreeze()
    gc.set_threshold(*before[4])
