"""Several replicas of `serve` behind one address, as API servers see a Service, and what happens to them."""

from __future__ import annotations

import abc
import base64
import contextlib
import copy
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS
from tests.apiserver.registration.samples import MANIFESTS
from tests.apiserver.traffic import Balancer, Load
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import MOST_SECONDS, calls, configurations, default_probes
from tests.controlplane.webhook_process import SERVE, WebhookProcess
from webhook.certificates.rotation import Authorities, authorities_in

Json = dict[str, Any]

CERTS: Final = Path(__file__).parents[2] / "certs"
NAMESPACE: Final = "device-taint-webhook"
SECRET: Final = path("v1", "secrets", namespace=NAMESPACE, name="device-taint-webhook-ca")
POLICY: Final = (
    f"{path('v1', 'configmaps', namespace=NAMESPACE)}?fieldSelector=metadata.name%3Ddevice-taint-webhook-policy"
)
CONFIGURATIONS: Final = tuple(
    path("admissionregistration.k8s.io/v1", plural, name="device-taint-webhook")
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
)
_INSTALLED: Final = (
    MANIFESTS / "base/namespace.yaml",
    MANIFESTS / "base/access.yaml",
    CERTS / "self-managed/secret.yaml",
    CERTS / "self-managed/access.yaml",
)
# Not measured: with coverage a review takes twice the time, and these tests are about load.
COMMAND: Final = ("/usr/bin/env", "-u", "COVERAGE_PROCESS_START", *SERVE)


def bundles(plane: ControlPlane) -> list[list[bytes]]:
    """The caBundles of both configurations."""
    found = [plane.client.get(each).object["webhooks"] for each in CONFIGURATIONS]
    return [[base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in webhooks] for webhooks in found]


class Replicas(abc.ABC):
    """The webhook installed, and processes that serve."""

    server_name: str
    """What the API server expects the certificate to hold for."""

    def __init__(self, plane: ControlPlane, *arguments: str) -> None:
        """arguments are added to each replica's."""
        self.plane = plane
        self.client = plane.client
        self.running: list[WebhookProcess] = []
        self.balancer = Balancer()
        self.keep_logs = False
        self._arguments = (f"--kubeconfig={plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)}", *arguments)

    @abc.abstractmethod
    def install(self) -> None:
        """Everything but the processes; the configurations lead to the balancer, which is there."""

    @abc.abstractmethod
    def new_process(self) -> WebhookProcess:
        """One more, not started."""

    @contextlib.contextmanager
    def serving(self, count: int) -> Iterator[Self]:
        """Installed, and so many replicas, from start to end."""
        with self.balancer:
            self.install()
            try:
                for _ in range(count):
                    self.start()
                yield self
            finally:
                self.keep_logs |= sys.exc_info()[0] is not None
                for each in self.running:
                    each.keep_logs = self.keep_logs
                    each.process.terminate()
                for each in self.running:
                    each.__exit__(None, None, None)

    def start(self) -> WebhookProcess:
        """One more replica; returns once it is ready and new connections may go to it."""
        process = self.new_process().__enter__()
        self.running.append(process)
        self._lead_there()
        return process

    def kill(self, number: int) -> None:
        """SIGKILL: no last words, no last write."""
        process = self.running.pop(number)
        os.kill(process.process.pid, signal.SIGKILL)
        process.__exit__(None, None, None)
        self._lead_there()

    def replace_first(self, lag_seconds: float) -> int:
        """What a roll-out does to the oldest: a new one is ready before it is told to stop. Gives its exit code.

        New connections come to it for so long after that, because a Service's proxies hear of it late.
        """
        self.start()
        leaving = self.running[0]
        leaving.process.terminate()
        told = time.monotonic()
        wait_until(lambda: not leaving.ready(), "the one that leaves is no longer ready")
        time.sleep(max(0.0, told + lag_seconds - time.monotonic()))
        self.running.pop(0)
        self._lead_there()
        wait_until(lambda: leaving.process.code is not None, "it has ended")
        code = leaving.stop()
        leaving.__exit__(None, None, None)
        return code

    def load(self, per_second: int) -> Load:
        """While the block lasts."""
        return Load(
            self.plane,
            self.balancer,
            lambda: bundles(self.plane)[0][0],
            self.server_name,
            per_second=per_second,
        )

    def called(self) -> bool:
        """Whether the API server reaches us: a probe of each kind is admitted, and no call failed."""
        before = calls(self.plane)
        replies = [self.client.create(collection, obj, dry_run=True) for collection, obj in default_probes(self.plane)]
        after = calls(self.plane)
        reached = after.answered != before.answered and after.failed == before.failed
        return reached and all(reply.ok for reply in replies)

    def _lead_there(self) -> None:
        self.balancer.lead_to(each.base_url for each in self.running)


class SelfManaged(Replicas):
    """With component self-managed; the configurations trust nobody yet."""

    server_name = "127.0.0.1"

    def install(self) -> None:
        """By url, for which the certificates get a name more."""
        for file in _INSTALLED:
            done = self.plane.kubectl("apply", "-f", file)
            assert done.code == 0, done
        for configuration, url in zip(configurations(MANIFESTS), CONFIGURATIONS, strict=True):
            changed = copy.deepcopy(configuration)
            for webhook in changed["webhooks"]:
                webhook["clientConfig"] = {"url": self.balancer.url + webhook["clientConfig"]["service"]["path"]}
                webhook["timeoutSeconds"] = MOST_SECONDS  # a call that a busy machine delays has not failed
            _ = self.client.apply(url, changed, field_manager="test-registration").object
        self._wait_granted()

    def _wait_granted(self) -> None:
        """Until the API server's authorizer knows the roles, which it hears of by a watch of its own."""
        account = self.client.acting_as(ACCOUNT, ACCOUNT_GROUPS)
        for url in (SECRET, POLICY, path("v1", "namespaces"), *CONFIGURATIONS):
            wait_until(lambda url=url: account.get(url).code != HTTPStatus.FORBIDDEN, f"{url} may be read")  # type: ignore[misc]

    def new_process(self) -> WebhookProcess:
        """One that signs for itself."""
        arguments = (f"--certificate-names={self.server_name}", *self._arguments)
        return WebhookProcess(*arguments, standalone=False, command=COMMAND, self_managed=True)

    @property
    def data(self) -> dict[str, bytes]:
        """What the Secret holds."""
        fields = self.client.get(SECRET).object.get("data") or {}
        return {name: base64.b64decode(text) for name, text in fields.items()}

    @property
    def authorities(self) -> Authorities:
        return authorities_in(self.data)

    def write(self, data: Json | None) -> None:
        """Puts base64 into fields of the Secret; None for all of them takes everything out."""
        _ = self.client.patch(SECRET, {"data": data}).object

    def wait(self, condition: Callable[[Authorities], bool], what: str, seconds: float) -> Authorities:
        """Until the Secret is as it is waited for."""
        found = self.authorities

        def held() -> bool:
            nonlocal found
            found = self.authorities
            return condition(found)

        wait_until(held, what, seconds=seconds)
        return found  # and not a later one, of which the condition may no longer hold

    def issuers_trusted(self) -> bool:
        """Whether every caBundle is the one CA that signs, and nothing else is stored."""
        found = self.authorities
        if found.signing is None or found.next is not None or found.old:
            return False
        return {each for webhooks in bundles(self.plane) for each in webhooks} == {found.signing.pair.certificate}


def logged(process: WebhookProcess, message: str) -> list[Json]:
    """Lines of a replica's log."""
    return [line for line in process.logged() if line["msg"] == message]
