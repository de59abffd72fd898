"""The product at work, in a terminal:  python -m tests.demo [--all] [--files] [--keep]

Six scenes with a control plane (found or built by tests.controlplane.assets): a real API server calls our server by the
shipped manifests, and kubectl talks to it. --all (ALL=1) tells the whole story instead. While a control plane is being
built, and where there can be none, three scenes need files only. Exit codes: 0 played to the end, 1 a step did not
come out as the story says, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from tests.controlplane import assets as control_plane_assets
from tests.controlplane.assets import Assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.processes import NotReadyError, Process
from tests.controlplane.webhook_process import WebhookProcess
from tests.demo import cluster
from tests.demo.building import BackgroundBuild, BuildNews
from tests.demo.files import files
from tests.demo.telling import StoryError, Storyteller
from tests.demo.terminal import Terminal
from tests.demo.tour import ALONE

_INTERRUPTED = 130
_OFF = {"", "0", "false", "no", "off"}
_WATCH_SECONDS = 0.5
_COLUMN = 26
"""Where a line of \"what next\" goes on behind its command."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Tells the story; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description="The product at work, in a terminal.")
    parser.add_argument("--files", action="store_true", help="only what needs no control plane, even if there is one")
    parser.add_argument("--all", action="store_true", default=_set("ALL"), help="the whole story (also ALL=1)")
    parser.add_argument(
        "--keep", action="store_true", default=_set("KEEP"), help="leave it running until Ctrl-C (also KEEP=1)"
    )
    options = parser.parse_args()
    if options.files and (options.all or options.keep):
        parser.error("--files has no more to tell, and nothing to leave running")
    terminal = Terminal()
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        if options.files:
            return _alone(terminal, time.monotonic())
        return play(terminal, whole=options.all, keep=options.keep)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (StoryError, NotReadyError) as e:
        terminal.failure(f"The demo failed: {e}\nWhere a server ran, its log is kept in the folder named above.")
        return 1


def _set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() not in _OFF


def _interrupt(*_: object) -> NoReturn:
    _stopping()
    raise KeyboardInterrupt


def _stopping() -> None:
    """No signal from here on: what runs is being stopped, in an order that it would spoil."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def play(terminal: Terminal, *, whole: bool, keep: bool) -> int:
    """The demo on a terminal; gives the exit code. Raises: StoryError, NotReadyError."""
    started = time.monotonic()
    if control_plane_assets.unbuilt(kwok=True):
        terminal.title("A control plane is being built, once, in 15 to 30 minutes. Meanwhile, what files show:")
        with BackgroundBuild() as build:
            news = BuildNews(build, terminal)
            try:
                _tell_files(terminal, news.tell)
                failure = news.wait()
            except KeyboardInterrupt:
                return _INTERRUPTED
        if failure:
            terminal.blank()
            return _end_alone(terminal, failure, started)
        terminal.blank()
    try:
        assets = control_plane_assets.find(kwok=True, progress=terminal.say)
    except AssetsUnavailableError as e:
        terminal.notice(f"No control plane: {e}.")
        return _alone(terminal, started)
    return _with_cluster(terminal, assets, whole=whole, keep=keep)


def _alone(terminal: Terminal, started: float) -> int:
    terminal.title("device-taint-webhook at work, on files alone")
    _tell_files(terminal)
    return _end_alone(terminal, "", started)


def _tell_files(terminal: Terminal, between: Callable[[], None] = lambda: None) -> None:
    with files() as stage:
        Storyteller(terminal, stage).tell(ALONE, between=between)


def _with_cluster(terminal: Terminal, assets: Assets, *, whole: bool, keep: bool) -> int:
    terminal.title("device-taint-webhook at work, on a real control plane")
    started = time.monotonic()
    with cluster.started(assets, terminal) as stage:
        try:
            cluster.tell(stage, terminal, whole=whole)
            made, failed = stage.calls()
        except KeyboardInterrupt:
            return _INTERRUPTED  # not an exception for the blocks around: they keep logs of failures only
        terminal.blank()
        terminal.title(
            f"Finished in {time.monotonic() - started:.0f} s. By its own count the API server called our webhook "
            f"{made} times; {failed} calls failed."
        )
        if not keep:
            terminal.entry("KEEP=1 make demo", "the same, left running for you to try things", _COLUMN)
        if not whole:
            terminal.entry("ALL=1 make demo", "the whole story: exceptions, holds, templates, ...", _COLUMN)
        _next(terminal)
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


def _end_alone(terminal: Terminal, failure: str, started: float) -> int:
    """The end of a demo that has no control plane."""
    terminal.blank()
    if failure:
        terminal.notice(f"No control plane: {failure}")
    terminal.title(f"Finished in {time.monotonic() - started:.0f} s, without a control plane.")
    terminal.notice(
        "For a real API server and kubectl: install Go 1.26 or newer (https://go.dev/dl) and run `make demo`. Or set "
        "KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl, such as setup-envtest makes."
    )
    _next(terminal)
    return 0


def _next(terminal: Terminal) -> None:
    terminal.entry("docs/getting-started.md", "in a cluster of your own, in ten minutes", _COLUMN)


def _keep(terminal: Terminal, webhook: WebhookProcess, processes: Mapping[str, Process], lines: Iterable[str]) -> None:
    """Waits until it is interrupted, or until one of the processes ends by itself."""
    pids = ", ".join(f"{name} {process.pid}" for name, process in processes.items())
    # From before the terminal says how to stop it.
    with contextlib.suppress(KeyboardInterrupt):
        terminal.blank()
        terminal.title("Everything goes on running. In another terminal:")
        terminal.lines(*lines)
        terminal.blank()
        terminal.entry("go on", "step 2 of docs/getting-started.md: the webhook is installed, and pods are simulated")
        terminal.entry("webhook's log", str(webhook.process.log))
        terminal.entry("webhook's metrics", webhook.metrics_url)
        terminal.entry("to stop all of it", f"Ctrl-C here, or kill {os.getpid()}, which runs {pids}")
        while all(process.code is None for process in processes.values()):
            time.sleep(_WATCH_SECONDS)
        ended = ", ".join(f"{name} with {p.code}" for name, p in processes.items() if p.code is not None)
        raise StoryError(f"ended by itself: {ended}")
    terminal.blank()


if __name__ == "__main__":
    sys.exit(main())
