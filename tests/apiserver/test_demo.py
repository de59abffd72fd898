"""The demo, run as a user runs it: with a control plane, without one, and kept running."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.controlplane.assets import Assets

DEMO = (sys.executable, "-m", "tests.demo")
IN_A_CLUSTER: Final = 26
"""Chapters."""
WITHOUT_ONE: Final = 14
_LINES: Final = 60
"""Of the output's end: a log that is cut still has them, and they say why the demo failed."""


def played(chapters: int, environment: Mapping[str, str]) -> str:
    """What the demo prints; it must end well, and its stderr (where kept logs are named) must be empty."""
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, _ended(done)
    assert done.stderr == "", _ended(done)
    assert re.findall(r"^(\d+)\. ", done.stdout, re.MULTILINE) == [str(n + 1) for n in range(chapters)]
    assert "\033" not in done.stdout  # it is no terminal
    return done.stdout


def _ended(done: subprocess.CompletedProcess[str]) -> str:
    """How the demo ended: what counts comes first."""
    end = "\n".join(done.stdout.splitlines()[-_LINES:])
    return f"exit code {done.returncode}\nstderr:\n{done.stderr}\nthe last {_LINES} lines of stdout:\n{end}"


def environment(**changes: str) -> dict[str, str]:
    """This process's, without what would change the demo."""
    left_out = {"KEEP", "COLUMNS", "KUBECONFIG"}
    return {**{k: v for k, v in os.environ.items() if k not in left_out}, **changes}


def unwrapped(text: str) -> str:
    """Without the line breaks that the width of a terminal makes."""
    return " ".join(text.split())


@pytest.mark.apiserver
@pytest.mark.slow
@pytest.mark.whole
def test_demo_tells_its_story_with_a_real_control_plane(assets: Assets) -> None:
    text = unwrapped(played(IN_A_CLUSTER, environment()))
    refused = 'tolerations[0].operator: Invalid value: "Equal": must be "Exists" when key is empty'
    for expected in (
        f"kube-apiserver {assets.version}",
        "resourceclaim.resource.k8s.io/training created",
        f'The ResourceClaim "careless" is invalid: * spec.devices.requests[0].exactly.{refused}',
        "devicetaintrule.resource.k8s.io/gpu-7 configured",
        "spec.deviceSelector: Forbidden: hits 8 devices, 6 pods in 1 namespace: an empty selector is every device",
        "evicts 6 pods in 1 namespace: 4 at once, 2 after 1 h (rule impact)",
        " pods evicted; 2 pods pending in 1 namespace; 1 held; next due",
        "EvictionCancelled",
        "cards-2/gpu-1 taint card.example.com/firmware:NoExecute - old",
        "selects 3 devices in 2 pools; evicts 3 pods in 1 namespace, all at once (rule impact)",
        "resourceslicepatch.devicetaint.io/old-firmware created",
        "statefulset.apps/chat 1/4",
        "configmap/device-taint-webhook-policy created",
        'no rule allows "test-admin" in namespace "production" a toleration of key',
        "allowed by an exception until",
        "burn-in-gpu-",
        '{"username":"test-admin","groups":["system:masters","system:authenticated"]',
        'The ConfigMap "device-taint-webhook-policy" is invalid: * data[policy.yaml].rules[0].action: Unsupported',
        "9 errors, 4 warnings; skipped: 29 of other kinds (exit code 1)",
    ):
        assert expected in text
    assert re.search(r"training/serve-1 - 0 node-[12]/gpu-", text), "on whichever node the scheduler put it"
    made, failed = re.findall(r"the API server called our webhook (\d+) times; (\d+) calls failed\.", text)[0]
    # Two for each of the claims, templates and rules that the server finds valid (more if it tries an update again),
    # one for the others; one for each of the three ConfigMaps; and those that pods have made.
    assert int(made) >= 40
    assert failed == "0"


@pytest.mark.slow
@pytest.mark.whole
def test_demo_without_go_and_control_plane_says_so_and_asks_our_server(tmp_path: Path) -> None:
    changes = {"PATH": str(tmp_path), "DEVICE_TAINT_WEBHOOK_CACHE": str(tmp_path), "COLUMNS": "80"}
    without = {k: v for k, v in environment(**changes).items() if k != "KUBEBUILDER_ASSETS"}
    output = played(WITHOUT_ONE, without)
    lines = [line for line in output.splitlines() if " " in line.strip()]  # nothing is broken within a word
    assert max(map(len, lines)) < 80
    text = unwrapped(output)
    for expected in (
        "No control plane: kubernetes-",
        "there is no Go to build it: install Go",
        "HTTP 200: refused with 422 Invalid * spec.devices.requests[0].exactly.tolerations[0].operator: Invalid value:",
        "HTTP 200: refused with 403 Forbidden * spec.devices.requests[0].exactly.tolerations[0]: Forbidden: no rule",
        "10 errors, 4 warnings; skipped: 29 of other kinds (exit code 1)",
        "without a control plane. Next:",
        "install Go 1.26 or newer",
    ):
        assert expected in text


@pytest.mark.slow
def test_demo_that_is_kept_serves_until_it_is_interrupted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with (
        output.open("w") as stdout,
        subprocess.Popen(
            [*DEMO, "--standalone"],
            cwd=ROOT,
            env=environment(KEEP="1"),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        ) as demo,
    ):
        try:
            wait_until(
                lambda: "to stop all of it" in output.read_text() or demo.poll() is not None, "kept", seconds=300
            )
            told = output.read_text()
            server = re.search(r"export URL=(\S+) CA=(\S+)", told)
            pid = re.search(r"which runs webhook (\d+)", told)
            assert server is not None
            assert pid is not None
            assert _answers(server[1], server[2])
        finally:
            demo.send_signal(signal.SIGINT)
            _, errors = demo.communicate(timeout=120)
    assert (demo.returncode, errors) == (0, ""), output.read_text()[-4000:]
    assert not Path(server[2]).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid[1]), 0)


def _answers(url: str, ca: str) -> bool:
    context = ssl.create_default_context(cafile=ca)
    with contextlib.closing(http.client.HTTPSConnection(urlsplit(url).netloc, timeout=60, context=context)) as server:
        server.request("GET", "/validate")
        return server.getresponse().status == 405
