"""Several of our servers behind one registration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS, Stage
from tests.apiserver.registration.samples import MANIFESTS
from tests.apiserver.traffic import Balancer
from tests.controlplane.pki import Authority
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import MOST_SECONDS, register, unregister
from tests.controlplane.webhook_process import WebhookProcess

_SYNCED = "device_taint_webhook_inventory_synced 1.0"


class Replicas:
    """Started, synced and registered while the block lasts. Each connection of the API server goes to the next."""

    def __init__(self, stage: Stage, count: int) -> None:
        self._stage = stage
        self._authority = Authority("test-webhook-ca")
        self._stack = ExitStack()
        self.all = [self._new() for _ in range(count)]

    keep_logs = False
    balancer: Balancer

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for each in self.all:
                stack.enter_context(each)
            for each in self.all:
                wait_synced(each)
            self.balancer = balancer = stack.enter_context(Balancer())
            balancer.lead_to(each.base_url for each in self.all)
            plane = self._stage.plane
            wanted = register(plane, MANIFESTS, balancer.url, self._authority.pem, timeout_seconds=MOST_SECONDS)
            stack.callback(unregister, plane, wanted)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.all:
            each.keep_logs = self.keep_logs
        self._stack.close()

    def _new(self) -> WebhookProcess:
        plane = self._stage.plane
        kubeconfig = plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
        return WebhookProcess(f"--kubeconfig={kubeconfig}", standalone=False, authority=self._authority)


def wait_synced(webhook: WebhookProcess) -> None:
    """Until it knows what is in the cluster."""
    wait_until(lambda: _SYNCED in webhook.metrics(), "the inventory is known")


@contextmanager
def called(stage: Stage) -> Iterator[None]:
    """The stage's own server, started, synced and registered while the block lasts."""
    stage.start_webhook()
    try:
        wait_synced(stage.webhook)
        stage.register()
        yield
    finally:
        stage.unregister()
        stage.stop_webhook()
