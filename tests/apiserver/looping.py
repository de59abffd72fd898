"""Coroutines against a real API server, with time enough for it to come back on a busy machine."""

from __future__ import annotations

from functools import partial

from tests.unit.cluster import peer

run = partial(peer.run, seconds=900.0)
until = partial(peer.until, seconds=240.0)
