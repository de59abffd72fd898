"""What a client in a pod gets that calls the webhook itself, with the flags of each overlay (R2)."""

from __future__ import annotations

import json
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.apiserver.manifests.installing import OVERLAYS, rendered
from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS
from tests.builders import make_review, make_rule, make_template, make_toleration
from tests.controlplane.client import Client
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.apiserver.policy.stage import Stage

pytestmark = pytest.mark.apiserver

_ABOUT_CALLERS: Final = ("CLIENT_CA_FILE", "CLIENT_NAMES", "TRUST_UNAUTHENTICATED_CALLERS")
_PREFIX: Final = "DEVICE_TAINT_WEBHOOK_"
EMPTYING: Final = make_rule(selector={})


@pytest.fixture(scope="module")
def serving(installed: Stage) -> Iterator[Callable[[str], WebhookProcess]]:
    """`serve` with what an overlay says about callers; overlays that say the same share a process."""
    running: dict[tuple[str, ...], WebhookProcess] = {}
    kubeconfig = installed.plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
    with ExitStack() as stack:

        def each(overlay: str) -> WebhookProcess:
            flags = tuple(_flags(installed, overlay))
            if flags not in running:
                webhook = WebhookProcess(f"--kubeconfig={kubeconfig}", *flags, standalone=False)
                running[flags] = stack.enter_context(webhook)
                wait_until(lambda: "inventory_synced 1.0" in webhook.metrics(), "the inventory is known")
            return running[flags]

        yield each


def _flags(stage: Stage, overlay: str) -> Iterator[str]:
    (container,) = (
        container
        for document in rendered(stage.plane.assets, f"overlays/{overlay}")
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
        if container["name"] == "serve"
    )
    given = {each["name"].removeprefix(_PREFIX): each["value"] for each in container["env"] if "value" in each}
    for name in _ABOUT_CALLERS:
        if name in given:
            # the ConfigMap is mounted: here the CA lies in another place
            flag = f"--{name.lower().replace('_', '-')}={given[name]}"
            yield stage.plane.proof if name == "CLIENT_CA_FILE" else flag
    yield from (each for each in container["args"] if any(name.lower() in each for name in ("client-", "trust-")))


def answer(webhook: WebhookProcess, context: ssl.SSLContext, where: str, obj: Any) -> tuple[int, Any]:
    """HTTP status and body; 0 where no connection comes about."""
    client = Client(webhook.base_url, context)
    try:
        reply = client.request("POST", where, make_review(obj, user="alice"))
    except OSError:
        return 0, {}
    finally:
        client.close()
    return reply.code, reply.body


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("user", ["", "system:node:node-0"])
def test_client_in_a_pod_gets_no_signature_and_no_code(
    installed: Stage, serving: Callable[[str], WebhookProcess], overlay: str, user: str
) -> None:
    """Without a certificate, and with one of the cluster's CA in another name than an API server's."""
    webhook = serving(overlay)
    context = ssl.create_default_context(cadata=webhook.ca_pem.decode())
    if user:
        context = installed.plane.webhook_client(webhook.ca_pem, user)
    for where, obj in (("/mutate", make_template([make_toleration()])), ("/validate", EMPTYING)):
        code, body = answer(webhook, context, where, obj)
        assert code in ({0, 403} if overlay == "client-certificates" else {200}), body
        assert "patch" not in body.get("response", {})
        assert "confirm-impact" not in json.dumps(body)


def test_api_server_that_proves_itself_is_given_both(
    installed: Stage, serving: Callable[[str], WebhookProcess]
) -> None:
    """The same questions, so that the answers above are for want of proof."""
    webhook = serving("client-certificates")
    context = installed.plane.webhook_client(webhook.ca_pem)
    code, body = answer(webhook, context, "/mutate", make_template([make_toleration()]))
    assert (code, "patch" in body["response"]) == (200, True)
    code, body = answer(webhook, context, "/validate", EMPTYING)
    assert (code, "confirm-impact" in body["response"]["status"]["message"]) == (200, True)
