"""Claims that say of themselves that the scheduler made them: their pods count all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.guard import crowd
from tests.apiserver.guard.crowd import make_rule
from tests.apiserver.guard.replicas import called
from tests.apiserver.objects import RULES
from tests.apiserver.policy.stage import Stage
from webhook.api.claims import EXTENDED_RESOURCE

pytestmark = pytest.mark.whole

LEFT: Final = 40
"""How many claims stay as they are: by themselves under the limit of 50 pods."""


@pytest.fixture
def forged(stage: Stage) -> Iterator[Stage]:
    """The annotation is on the claims before the webhook reads them for the first time."""
    _annotate(stage, "true")
    try:
        with called(stage):
            yield stage
    finally:
        _annotate(stage, None)


def _annotate(stage: Stage, value: str | None) -> None:
    patch: dict[str, Any] = {"metadata": {"annotations": {EXTENDED_RESOURCE: value}}}

    def annotate(number: int) -> None:
        _ = stage.client.patch(f"{crowd.CLAIMS}/{crowd.node(number)}", patch).object

    stage.client.each(annotate, range(LEFT, crowd.COUNT), threads=8)


def test_annotation_that_the_api_server_takes_from_anyone_hides_no_pod(forged: Stage) -> None:
    reply = forged.client.create(RULES, make_rule(None, "forged"))
    assert (reply.code, reply.reason) == (403, "Forbidden"), reply
    assert "hits 500 devices, 500 pods in 1 namespace: the limit is 50 pods" in reply.message
