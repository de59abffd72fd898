"""Callers that do not prove to be API servers leave nothing in the guard's window (R2)."""

from __future__ import annotations

import ssl
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from tests.apiserver.guard.crowd import make_rule
from tests.apiserver.guard.replicas import wait_synced
from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS
from tests.builders import make_review
from tests.controlplane.client import Client
from tests.controlplane.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from tests.apiserver.policy.stage import Stage

pytestmark = pytest.mark.apiserver

LIMIT: Final = 50
"""Pods, by the built-in policy; each rule hits one."""


def _allowed(webhook: WebhookProcess, context: ssl.SSLContext) -> list[bool]:
    """What becomes of reviews of rules on one node after the other, sent to the webhook itself."""
    with closing(Client(webhook.base_url, context)) as client:
        reviews = [make_review(make_rule(number), user="mallory") for number in range(LIMIT + 10)]
        replies = [client.request("POST", "/validate", review) for review in reviews]
    return [reply.object["response"]["allowed"] for reply in replies]


def test_reviews_of_a_caller_without_a_certificate_do_not_fill_the_window(stage: Stage) -> None:
    """As the base is shipped: no client CA. Each review is judged by itself, however many come."""
    kubeconfig = stage.plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
    with WebhookProcess(f"--kubeconfig={kubeconfig}", standalone=False) as webhook:
        wait_synced(webhook)
        context = ssl.create_default_context(cadata=webhook.ca_pem.decode())
        assert _allowed(webhook, context) == [True] * (LIMIT + 10)


@pytest.mark.whole
def test_reviews_of_an_api_server_fill_the_window(guarded: Stage) -> None:
    """The same reviews with an API server's certificate, so that the answers above are for want of proof."""
    context = guarded.plane.webhook_client(guarded.webhook.ca_pem)
    assert _allowed(guarded.webhook, context) == [True] * LIMIT + [False] * 10
