"""Reviews that whoever reaches the port sends in somebody's name: they get nothing that lasts (R2)."""

from __future__ import annotations

import json
import ssl
import time
from contextlib import closing
from typing import Final

import pytest

from tests.apiserver.guard.crowd import make_rule
from tests.apiserver.objects import RULES
from tests.apiserver.policy.stage import Stage, make_policy
from tests.builders import make_review
from tests.controlplane.client import Client
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import WebhookProcess

pytestmark = pytest.mark.whole

LIMIT: Final = 2
"""Pods; each rule hits one."""
OPERATOR: Final = "system:serviceaccount:device-health:operator"
AT_ONCE_SECONDS: Final = 1.5
TRIES: Final = 10
"""Each by another operator: it takes four reviews in less than two seconds, and a busy machine may need more."""


def _forged(webhook: WebhookProcess, operator: str, numbers: range) -> list[bool]:
    """Whether reviews in the operator's name are allowed, sent to the webhook itself without a certificate."""
    context = ssl.create_default_context(cadata=webhook.ca_pem.decode())
    with closing(Client(webhook.base_url, context)) as client:
        reviews = [make_review(make_rule(number), user=operator) for number in numbers]
        replies = [client.request("POST", "/validate", review) for review in reviews]
    return [reply.object["response"]["allowed"] for reply in replies]


def test_forged_reviews_block_their_requester_for_two_seconds_and_then_no_more(guarded: Stage) -> None:
    guarded.use(make_policy(impact={"limits": [{"pods": LIMIT}]}))
    for number in range(TRIES):
        operator, began = f"{OPERATOR}-{number}", time.monotonic()
        at_once = _forged(guarded.webhook, operator, range(4))
        if time.monotonic() - began < AT_ONCE_SECONDS:
            break
        time.sleep(2.1)
    assert at_once == [True, True, False, False]
    time.sleep(2.1)
    assert _forged(guarded.webhook, operator, range(4, 6)) == [True, True]
    time.sleep(2.1)
    assert _forged(guarded.webhook, operator, range(6, 12)) == [True] * 6
    wait_until(lambda: guarded.metric("requesters_not_counted_ahead")[""] >= 1, "the metric says so")
    rule = make_rule(20, "real")
    stored = guarded.plane.kubectl("create", "-f", "-", stdin=json.dumps(rule), user=operator)
    assert stored.code == 0, stored
    assert guarded.client.get(f"{RULES}/real").ok
