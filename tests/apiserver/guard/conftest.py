"""A control plane with a crowd on it, on which nobody evicts anybody: what rules hit is known, and stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.guard import crowd
from tests.apiserver.guard.replicas import Replicas, called
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage


@pytest.fixture(scope="package")
def crowded(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The webhook is installed, but not running."""
    with own_stage(request, since=37, audit=True) as stage:
        crowd.install(stage.client)
        yield stage


@pytest.fixture
def stage(crowded: Stage) -> Iterator[Stage]:
    """Without rules, and with the built-in policy."""
    crowded.use_nothing()
    yield crowded
    crowded.unregister()
    crowd.delete_rules(crowded.client)


@pytest.fixture
def guarded(stage: Stage) -> Iterator[Stage]:
    """Called by the API server, with the built-in policy."""
    with called(stage):
        yield stage


@pytest.fixture
def replicas(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Replicas]:
    """Three of them, called through one address; they remember nothing of the test before."""
    failed_before = request.session.testsfailed
    with Replicas(stage, 3) as replicas:
        yield replicas
        replicas.keep_logs = request.session.testsfailed > failed_before
