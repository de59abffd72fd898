"""The demo, run as a user runs it: the tour, kept running; the whole story; and without a control plane."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.assets import Assets
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import ROOT

DEMO = (sys.executable, "-m", "tests.demo")
SCENES: Final = 6
"""Of the tour."""
WHOLE: Final = 27
WITHOUT_ONE: Final = 3
RANKS: Final = 4
"""Of the job that has to wait. The other may be seen before it goes: that depends on when the drain looks."""
LOOKS: Final = 4
"""Of the drain, of which each has a line; on a busy machine there are more."""
MOST_LINES: Final = 120
"""Of the tour, on a terminal of 100 columns."""
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
    left_out = {"ALL", "KEEP", "COLUMNS", "KUBECONFIG"}
    return {**{k: v for k, v in os.environ.items() if k not in left_out}, **changes}


def unwrapped(text: str) -> str:
    """Without the line breaks that the width of a terminal makes."""
    return " ".join(text.split())


@pytest.mark.apiserver
@pytest.mark.slow
@pytest.mark.whole
def test_demo_tells_its_story_with_a_real_control_plane(assets: Assets) -> None:
    text = unwrapped(played(WHOLE, environment(ALL="1")))
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
        "9 errors, 4 warnings; skipped: ",
    ):
        assert expected in text
    assert re.search(r"training/serve-1 - 0 node-[12]/gpu-", text), "on whichever node the scheduler put it"
    made, failed = re.findall(r"the API server called our webhook (\d+) times; (\d+) calls failed\.", text)[0]
    # Two for each of the claims, templates and rules that the server finds valid (more if it tries an update again),
    # one for the others; one for each of the three ConfigMaps; and those that pods have made.
    assert int(made) >= 40
    assert failed == "0"


@pytest.mark.slow
def test_demo_without_go_and_control_plane_says_so_and_needs_files_alone(tmp_path: Path) -> None:
    changes = {"PATH": str(tmp_path), "DEVICE_TAINT_WEBHOOK_CACHE": str(tmp_path), "COLUMNS": "80"}
    without = {k: v for k, v in environment(**changes).items() if k != "KUBEBUILDER_ASSETS"}
    output = played(WITHOUT_ONE, without)
    lines = [line for line in output.splitlines() if " " in line.strip()]  # nothing is broken within a word
    assert max(map(len, lines)) < 80
    text = unwrapped(output)
    for expected in (
        "No control plane: kubernetes-",
        "there is no Go to build it: install Go",
        'tolerations[0].operator: Invalid value: "Equal": must be "Exists"',
        "evicted 6 pods now 4 pods after 1 h 2 pods",
        'no rule allows "ann" in namespace "research" a toleration of every key',
        "without a control plane. For a real API server",
        "install Go 1.26 or newer",
    ):
        assert expected in text


@pytest.mark.apiserver
@pytest.mark.slow
@pytest.mark.whole
def test_tour_is_short_and_goes_on_until_it_is_interrupted_and_leaves_nothing_behind(
    assets: Assets, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    with (
        output.open("w") as stdout,
        subprocess.Popen(
            DEMO,
            cwd=ROOT,
            env=environment(KEEP="1", COLUMNS="101"),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        ) as demo,
    ):
        try:
            wait_until(
                lambda: "to stop all of it" in output.read_text() or demo.poll() is not None, "kept", seconds=1800
            )
            shown = output.read_text()
            tour = shown.partition("\nEverything goes on running.")[0]
            assert re.findall(r"^(\d+)\. ", tour, re.MULTILINE) == [str(n + 1) for n in range(SCENES)], shown
            waits = tour.count("is blocked: disruption budget ranks")  # two lines each; at least one job waits
            looks = len(re.findall(r"^ *\d+ pods? to evict\b", tour, re.MULTILINE))
            more = 2 * max(0, waits - RANKS) + max(0, looks - LOOKS)
            assert len(tour.splitlines()) - more < MOST_LINES  # one more if it is not kept running
            assert f"kube-apiserver {assets.version}" in tour
            assert " times; 0 calls failed." in unwrapped(tour)
            kubeconfig = re.findall(r"export KUBECONFIG=(\S+)", shown)[0]
            command = [str(assets.program("kubectl")), f"--kubeconfig={kubeconfig}", "get", "resourceslicepatches"]
            assert "old-firmware" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
            processes = dict(re.findall(r"(\S+) (\d+)(?:,|$)", unwrapped(shown.partition(", which runs ")[2])))
            assert {"kube-apiserver", "webhook", "evict", "patch"} <= processes.keys()
        finally:
            demo.send_signal(signal.SIGINT)
            _, errors = demo.communicate(timeout=600)
    assert (demo.returncode, errors) == (0, ""), output.read_text()[-4000:]
    assert not Path(kubeconfig).parent.exists()
    for pid in processes.values():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
