"""Client certificates on request: who is heard where they are asked for. No decision depends on them."""

from __future__ import annotations

import ssl

from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS, Stage
from tests.builders import make_review, make_rule
from tests.controlplane.client import Client
from tests.controlplane.webhook_process import WebhookProcess


def _status(webhook: WebhookProcess, context: ssl.SSLContext) -> int:
    """HTTP status; 0 where no connection comes about."""
    client = Client(webhook.base_url, context)
    try:
        return client.request("POST", "/validate", make_review(make_rule(selector={}))).code
    except OSError:
        return 0
    finally:
        client.close()


def test_only_clients_with_a_certificate_in_the_right_name_are_heard(installed: Stage) -> None:
    plane = installed.plane
    kubeconfig = plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
    with WebhookProcess(f"--kubeconfig={kubeconfig}", plane.proof, standalone=False) as webhook:
        contexts = {
            "nobody": ssl.create_default_context(cadata=webhook.ca_pem.decode()),
            "a kubelet": plane.webhook_client(webhook.ca_pem, "system:node:node-0"),
            "the API server": plane.webhook_client(webhook.ca_pem),
        }
        assert {who: _status(webhook, context) for who, context in contexts.items()} == {
            "nobody": 0,
            "a kubelet": 403,
            "the API server": 200,
        }
