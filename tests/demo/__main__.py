"""The product at work, in a terminal:  python -m tests.demo [--standalone] [--keep]

With a control plane (found or built by tests.controlplane.assets) a real API server calls our server by the shipped
manifests, and kubectl talks to it. Without one our server is asked directly; also while one is being built, after which
the demo goes on with it. Exit codes: 0 played to the end, 1 a step did not come out as the story says, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from tests.controlplane import assets as control_plane_assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.processes import NotReadyError
from tests.controlplane.webhook_process import ROOT
from tests.demo import cluster, standalone
from tests.demo.building import BackgroundBuild, BuildNews
from tests.demo.telling import STORY, StoryError
from tests.demo.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.controlplane.assets import Assets
    from tests.controlplane.processes import Process
    from tests.controlplane.webhook_process import WebhookProcess
    from tests.demo.standalone import Standalone

_INTERRUPTED = 130
_OFF = {"", "0", "false", "no", "off"}
_WATCH_SECONDS = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Tells the story; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description="The product at work, in a terminal.")
    parser.add_argument("--standalone", action="store_true", help="without a control plane, even if there is one")
    parser.add_argument(
        "--keep",
        action="store_true",
        default=os.environ.get("KEEP", "").lower() not in _OFF,
        help="leave everything running until Ctrl-C (also KEEP=1)",
    )
    options = parser.parse_args()
    terminal = Terminal()
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        return play(terminal, standalone=options.standalone, keep=options.keep)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (StoryError, NotReadyError) as e:
        terminal.failure(f"The demo failed: {e}\nThe logs are kept, in the folders named above.")
        return 1


def _interrupt(*_: object) -> NoReturn:
    _stopping()
    raise KeyboardInterrupt


def _stopping() -> None:
    """No signal from here on: what runs is being stopped, in an order that it would spoil."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def play(terminal: Terminal, *, standalone: bool, keep: bool) -> int:
    """The whole demo on a terminal; gives the exit code. Raises: StoryError, NotReadyError."""
    started = time.monotonic()
    terminal.title("device-taint-webhook at work")
    if not standalone:
        if control_plane_assets.unbuilt(kwok=True):
            return _while_one_is_built(terminal, started, keep=keep)
        try:
            assets = control_plane_assets.find(kwok=True, progress=terminal.say)
        except AssetsUnavailableError as e:
            terminal.notice(f"No control plane: {e}.")
            return _without_cluster(terminal, started, keep=keep)
        return _with_cluster(terminal, assets, started, keep=keep)
    return _without_cluster(terminal, started, keep=keep)


def _while_one_is_built(terminal: Terminal, started: float, *, keep: bool) -> int:
    """First without a control plane; then with it, when it is built, or to the end without."""
    terminal.say(
        "There is no control plane yet: it is being built in the background, once, in 9 to 18 minutes. Until then our "
        f"webhook is asked directly, with the AdmissionReviews that an API server would send for {_short(STORY)}."
    )
    with BackgroundBuild() as build:
        news = BuildNews(build, terminal)
        with standalone.started(terminal) as stage:
            try:
                told = standalone.tell(stage, terminal, news.tell)
                failure = news.wait()
            except KeyboardInterrupt:
                return _INTERRUPTED
            if failure:
                terminal.blank()
                terminal.notice(f"No control plane: {failure}")
                return _end_alone(terminal, stage, started, keep=keep)
    terminal.blank()
    terminal.title("The control plane is built. The same by kubectl, and what only a cluster has:")
    assets = control_plane_assets.find(kwok=True, progress=terminal.say)
    return _with_cluster(terminal, assets, started, keep=keep, first=told + 1)


def _with_cluster(terminal: Terminal, assets: Assets, started: float, *, keep: bool, first: int = 1) -> int:
    terminal.say(f"A real control plane, our webhook, kubectl, and the files in {_short(STORY)}.")
    with cluster.started(assets, terminal) as stage:
        try:
            cluster.tell(stage, terminal, first)
            made, failed = stage.calls()
        except KeyboardInterrupt:
            return _INTERRUPTED  # not an exception for the blocks around: they keep logs of failures only
        ending = (
            f"Finished in {time.monotonic() - started:.0f} s. By its own count the API server called our webhook "
            f"{made} times; {failed} calls failed."
        )
        _close(terminal, ending, keep=keep)
        if keep:
            lines = (
                f"export KUBECONFIG={stage.plane.kubeconfig}",
                f"export PATH={assets.folder}:$PATH",
                f"cd {stage.story}",
                "kubectl get devicetaintrules,resourceclaims -A",
            )
            _keep(terminal, stage.webhook, stage.processes, lines)
        _stopping()
    return 0


def _without_cluster(terminal: Terminal, started: float, *, keep: bool) -> int:
    terminal.say(
        "Told without a control plane: our webhook is asked directly, with the AdmissionReviews that an API server "
        f"would send for the files in {_short(STORY)}."
    )
    with standalone.started(terminal) as stage:
        try:
            standalone.tell(stage, terminal)
        except KeyboardInterrupt:
            return _INTERRUPTED
        return _end_alone(terminal, stage, started, keep=keep)


def _end_alone(terminal: Terminal, stage: Standalone, started: float, *, keep: bool) -> int:
    """The end of a demo that has no control plane."""
    _close(terminal, f"Finished in {time.monotonic() - started:.0f} s, without a control plane.", keep=keep)
    terminal.notice(
        "For the same with a real API server and kubectl: install Go 1.26 or newer (https://go.dev/dl) and run "
        "`make demo`; it builds them from Kubernetes' own modules, once, in 9 to 18 minutes. Or set "
        "KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl, such as setup-envtest makes."
    )
    if keep:
        ask = "curl --cacert $CA -H 'Content-Type: application/json'"
        lines = (
            f"export URL={stage.webhook.base_url} CA={stage.webhook.cert_dir / 'ca.crt'}",
            f"cd {stage.folder}",
            f"{ask} -d @careless-claim.json $URL/validate",
        )
        _keep(terminal, stage.webhook, stage.processes, lines)
    _stopping()
    return 0


def _close(terminal: Terminal, ending: str, *, keep: bool) -> None:
    terminal.blank()
    terminal.title(ending)
    terminal.title("Next:")
    if not keep:
        terminal.entry("KEEP=1 make demo", "the same, left running for you to try things")
    terminal.entry("docs/policy.md", "a policy of your own, step by step")
    terminal.entry("docs/admission.md", "everything it says, and what to do about it")
    terminal.entry("docs/eviction.md", "what the worker does, and what holds it back")
    terminal.entry("docs/patches.md", "taints by device class and CEL")
    terminal.entry("manifests/README.md", "what is registered, and what happens while it is down")
    terminal.entry(".venv/bin/device-taint-webhook check DIR", "judge your own manifests")


def _keep(terminal: Terminal, webhook: WebhookProcess, processes: Mapping[str, Process], lines: Iterable[str]) -> None:
    """Waits until it is interrupted, or until one of the processes ends by itself."""
    pids = ", ".join(f"{name} {process.pid}" for name, process in processes.items())
    # From before the terminal says how to stop it.
    with contextlib.suppress(KeyboardInterrupt):
        terminal.blank()
        terminal.title("Everything goes on running. In another terminal:")
        terminal.lines(*lines)
        terminal.blank()
        terminal.entry("webhook's log", str(webhook.process.log))
        terminal.entry("webhook's metrics", webhook.metrics_url)
        terminal.entry("to stop all of it", f"Ctrl-C here, or kill {os.getpid()}, which runs {pids}")
        while all(process.code is None for process in processes.values()):
            time.sleep(_WATCH_SECONDS)
        ended = ", ".join(f"{name} with {p.code}" for name, p in processes.items() if p.code is not None)
        raise StoryError(f"ended by itself: {ended}")
    terminal.blank()


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
