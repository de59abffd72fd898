"""The stage with a real control plane, in which our server is installed by the shipped manifests."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tests.apiserver.manifests.installing import write_registrations
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import Process, free_port
from tests.controlplane.registration import Calls, calls, register
from tests.controlplane.webhook_process import ROOT, WebhookProcess, our_environment
from tests.demo.chapters import BEFORE, IN_A_CLUSTER
from tests.demo.telling import (
    PROGRAM_SECONDS,
    Outcome,
    StoryError,
    Storyteller,
    copy_story,
    hang_reported,
    run_program,
)
from tests.demo.terminal import Terminal
from tests.demo.tour import TOUR, WITHOUT_IT

MANIFESTS = ROOT / "manifests"
_VALIDATING = "validating"
_INSTALLED = (
    *(f"base/{name}.yaml" for name in ("namespace", "access", "author-policy")),
    *(f"components/{name}/access.yaml" for name in ("evict", "evict-acting", "patches", "patch-controller")),
    "components/patches/definition.yaml",
)
_REGISTERED = "patches"
"""The component with which the webhook configurations call us."""
_NODES = ("node-1", "node-2")
_NAMESPACE = "device-taint-webhook"
_ACCOUNT = f"system:serviceaccount:{_NAMESPACE}:device-taint-webhook"
_EVICTOR = "device-taint-webhook-evict"
_PATCHER = "device-taint-patch"
_FOLLOWED_SECONDS = 600
_CALL_SECONDS = 30
"""The most that an API server waits. As shipped it is 3 or 5, and on a busy machine a call may take longer."""
_ACCOUNT_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{_NAMESPACE}", "system:authenticated")


class Cluster:
    """A control plane and our server, both running."""

    def __init__(
        self, plane: ControlPlane, webhook: WebhookProcess, workers: Mapping[str, Process], evictor_metrics: str
    ) -> None:
        """`workers` are our other processes, by name."""
        self.plane = plane
        self.webhook = webhook
        self._workers = workers
        self._evictor_metrics = evictor_metrics
        self.story = story_for(plane.server_version, plane.folder / "story")
        (self.story / "admin.kubeconfig").write_bytes(plane.kubeconfig.read_bytes())
        self._before = Calls()

    def register(self) -> None:
        """Has the API server call our server. Raises: NotReadyError."""
        where = self.webhook.base_url, self.webhook.ca_pem
        file = write_registrations(self.plane.assets, _REGISTERED, self.plane.folder)
        register(self.plane, self.plane.folder, *where, files=[file], timeout_seconds=_CALL_SECONDS)
        self._before = calls(self.plane)

    def calls(self) -> tuple[int, int]:
        """How often the API server has called our server since then, and how many calls failed, by its own count."""
        now = calls(self.plane)
        answered, failed = now.answered - self._before.answered, now.failed - self._before.failed
        return answered.total() + failed.total(), failed.total()

    @property
    def processes(self) -> dict[str, Process]:
        """All that runs, by name."""
        return {**self.plane.processes, "webhook": self.webhook.process, **self._workers}

    @property
    def metrics_addresses(self) -> dict[str, str]:
        """Where /metrics is served, by the component's label."""
        return {"admission": urlsplit(self.webhook.metrics_url).netloc, "eviction": self._evictor_metrics}

    def run(self, command: str) -> Outcome:
        """kubectl as the cluster's admin, or our command line."""
        program, *arguments = shlex.split(command)
        if arguments[:1] == ["dtaint"]:
            admin = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig)}
            return run_program(command.replace("kubectl dtaint", "device-taint-webhook", 1), self.story, admin)
        if program != "kubectl":
            # what is no kubectl needs no cluster, and gets none
            environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
            return run_program(command, self.story, environment)
        with contextlib.chdir(self.story), hang_reported(command):
            result = self.plane.kubectl(*arguments, timeout_seconds=PROGRAM_SECONDS)
        # A warning is written when the answer comes, before the line that says what became of the object.
        return Outcome(result.stderr + result.stdout, result.code)

    def follow(self, command: str) -> Generator[str]:
        """kubectl's lines as the cluster's admin, for ten minutes at most."""
        _, *arguments = shlex.split(command)
        yield from self.plane.kubectl_lines(*arguments, f"--request-timeout={_FOLLOWED_SECONDS}s")

    def validations(self) -> int:
        """By the API server's own count."""
        answered = calls(self.plane).answered
        return sum(count for (kind, _), count in answered.items() if kind == _VALIDATING)

    def log(self) -> str:
        return self.webhook.process.log.read_text()


@contextlib.contextmanager
def started(assets: Assets, terminal: Terminal) -> Iterator[Cluster]:
    """Starts both, told as set-up; nothing is registered yet. An exception keeps the logs and names their folders."""
    with contextlib.ExitStack() as stack:
        with terminal.task(
            f"starting etcd, kube-apiserver {assets.version}, kube-controller-manager and kube-scheduler"
        ):
            plane = stack.enter_context(ControlPlane(assets, controllers=[], scheduler=True, kwok=True))
        with terminal.task("installing our manifests, starting webhook and controllers as their service accounts"):
            _install(plane)
            for node in _NODES:
                plane.add_node(node)
            kubeconfig = plane.kubeconfig_of(_ACCOUNT, _ACCOUNT_GROUPS)
            arguments = (f"--kubeconfig={kubeconfig}", f"--patch-account={_PATCHER}")
            webhook = stack.enter_context(WebhookProcess(*arguments, standalone=False))
            evictor_metrics = f"127.0.0.1:{free_port()}"
            delegated = ("--mode=delegated", f"--metrics-bind-address={evictor_metrics}")
            workers = {
                "evict": stack.enter_context(_worker(plane, "evict", _EVICTOR, *delegated)),
                "patch": stack.enter_context(_worker(plane, "patch", _PATCHER, "--metrics-bind-address=0")),
            }
        yield Cluster(plane, webhook, workers, evictor_metrics)


def tell(stage: Cluster, terminal: Terminal, *, whole: bool) -> None:
    """The tour, or the whole story.

    Raises: StoryError; NotReadyError if the API server does not call our server.
    """
    teller = Storyteller(terminal, stage)
    before, chapters = (BEFORE, IN_A_CLUSTER) if whole else (WITHOUT_IT, TOUR)
    terminal.say(before.title)
    teller.act(before)
    with terminal.task(f"registering it as manifests/components/{_REGISTERED} does"):
        stage.register()
    teller.tell(chapters)


def story_for(version: str, folder: Path) -> Path:
    """The story's files in `folder`, in the versions that a release serves."""
    copy_story(folder)
    claims, rules = versions.api_versions(version)[0], versions.rule_versions(version)[0]
    for file in folder.glob("*.yaml"):
        text = file.read_text()
        served = rules if "kind: DeviceTaintRule" in text else claims
        file.write_text(text.replace("resource.k8s.io/v1\n", f"resource.k8s.io/{served}\n"))
    return folder


@contextlib.contextmanager
def _worker(plane: ControlPlane, name: str, account: str, *arguments: str) -> Iterator[Process]:
    """A command of ours that works without being called, at work. Its log is in the control plane's folder."""
    command = [
        *(sys.executable, "-m", "webhook", name, "--leader-elect", "--health-probe-bind-address=0"),
        f"--kubeconfig={plane.kubeconfig_of_account(_NAMESPACE, account)}",
        *arguments,
    ]
    log = plane.folder / f"{name}.log"
    process = Process(name, command, log, environment=our_environment())
    try:
        process.wait_ready(lambda: '"working"' in log.read_text(), seconds=180)
        yield process
    finally:
        process.stop()


def _install(plane: ControlPlane) -> None:
    """The manifests but for what calls us. Raises: StoryError, NotReadyError."""
    files = [argument for name in _INSTALLED for argument in ("-f", MANIFESTS / name)]
    done = plane.kubectl("apply", *files)
    if done.code != 0:
        raise StoryError(f"the manifests cannot be installed: {done.stderr}")
    plane.wait_discovered("devicetaint.io", "resourceslicepatches")
