"""docs/getting-started.md, and docs/install.md with Helm, followed from the image to the removal."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from release.bases import NotHereError
from release.images import need_tools
from tests.apiserver.chart.helming import HELMS, helm_program
from tests.apiserver.pages.fleet import RULES, example_driver
from tests.apiserver.pages.following import GETTING_STARTED, INSTALL, blocks
from tests.apiserver.pages.newcomer import EVICT, SERVE, Newcomer
from tests.controlplane.client import path
from tests.controlplane.contents import ImageContents
from tests.controlplane.egress import EgressProxy
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError, wait_until

pytestmark = pytest.mark.whole

_AMISS: Final = re.compile(r"^(?:warn|fail) +([^:]+):", re.MULTILINE)
_NEXT_COMMAND: Final = re.compile(r"(?<!\\)\n(?=.)")
DOCTOR: Final = "kubectl dtaint doctor --wait 300"
PODS: Final = path("v1", "pods", namespace="device-taint-try")


@pytest.fixture(scope="module")
def newcomer(page_plane: ControlPlane, egress: EgressProxy) -> Iterator[Newcomer]:
    """In a checkout, with the image in the registry."""
    try:
        need_tools()
    except NotHereError as error:
        pytest.skip(f"the image was not built: {error}")
    with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as folder:
        newcomer = Newcomer(page_plane, egress, Path(folder))
        newcomer.run(*blocks(INSTALL, "Image"), seconds=1800)
        newcomer.run("pipx install .")
        yield newcomer


@pytest.fixture(autouse=True)
def devices(newcomer: Newcomer) -> Iterator[None]:
    """What the example driver's chart leaves in a cluster of one node; afterwards there is no installation."""
    with example_driver(newcomer):
        yield
    newcomer.uninstall()


def test_who_follows_the_page_gets_what_it_says_at_each_step(newcomer: Newcomer) -> None:
    install, disable = blocks(GETTING_STARTED, "Install")
    installing = newcomer.start(install)
    with newcomer.image(SERVE) as contents, newcomer.serving(contents):
        printed = newcomer.finish(installing)
        assert _AMISS.findall(printed) == [], printed
        newcomer.run(disable)
        upgrade, _helm = blocks(INSTALL, "Upgrade and downgrade")
        newcomer.run(upgrade.replace("NEW_TAG", "VERSION"))
        assert _AMISS.findall(newcomer.run(DOCTOR)) == []
        first = _first_rule(newcomer)
        assert len(_NEXT_COMMAND.split(install.strip())) + first <= 8, "commands to the first refused rule"
        _first_policy(newcomer)
        printed = newcomer.run(*blocks(GETTING_STARTED, "A first preview"), codes={0, 1})
        assert "2 pods" in printed
        assert printed.count("device-taint-try/") >= 2
        assert _running(newcomer) == 2
        _drain(newcomer, contents)
        newcomer.run(*blocks(GETTING_STARTED, "Remove everything"))
        assert newcomer.left() == ""
    assert newcomer.client.get(PODS).items == []


@pytest.mark.parametrize("helm", HELMS)
def test_the_chart_is_installed_tested_upgraded_and_removed_as_the_page_says(newcomer: Newcomer, helm: str) -> None:
    newcomer.use("helm", helm_program(helm))
    (install,) = blocks(INSTALL, "With Helm")
    _manifests, upgrade = blocks(INSTALL, "Upgrade and downgrade")
    remove, definition = blocks(INSTALL, "Uninstall with Helm")
    *installing, tested = _NEXT_COMMAND.split(install.strip())
    assert "0 chart(s) failed" in newcomer.run("helm lint manifests/helm")
    newcomer.run("\n".join(installing))
    with newcomer.image(SERVE) as contents, newcomer.serving(contents):
        assert _AMISS.findall(newcomer.run(DOCTOR)) == []
        with newcomer.running_once("doctor", contents) as kubelet:
            assert "Succeeded" in newcomer.run(tested.removesuffix(" --logs"))  # no kubelet would give them
        assert kubelet.faults == []
        assert "answered through the API server" in kubelet.output["doctor"]
        newcomer.run(upgrade.replace("NEW_TAG", "VERSION"))
        with newcomer.running_once("cleanup", contents) as kubelet:
            newcomer.run(remove)
        newcomer.run(definition)
    assert kubelet.faults == []
    assert "deleted, so API servers stop calling the webhook" in kubelet.output["cleanup"]
    assert newcomer.left() == ""


def _running(newcomer: Newcomer) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in newcomer.client.get(PODS).items)


def _first_rule(newcomer: Newcomer) -> int:
    """It is refused, and says what it would hit. Returns how many commands it takes."""
    pods, rule, refused = blocks(GETTING_STARTED, "The first refused rule")
    newcomer.run(pods)
    wait_until(lambda: _running(newcomer) == 2, "the pods run", seconds=240)
    _wait_printed(newcomer, rule, refused)
    assert newcomer.client.get(RULES).items == []
    return sum(len(_NEXT_COMMAND.split(block.strip())) for block in (pods, rule))


def _first_policy(newcomer: Newcomer) -> None:
    """It warns, and then it refuses."""
    store, warned, enforce = blocks(GETTING_STARTED, "A first policy")
    _wait_printed(newcomer, store, warned)
    newcomer.run(enforce)
    _, rule, refused = blocks(GETTING_STARTED, "The first refused rule")
    _wait_printed(newcomer, rule.replace("apply", "apply --dry-run=server"), refused)


def _wait_printed(newcomer: Newcomer, command: str, shown: str) -> None:
    """Until a command prints what the page shows, where "..." stands for anything."""
    printed: list[str] = []

    def matches() -> bool:
        printed.append(newcomer.run(command, codes={0, 1}))
        lines = printed[-1].splitlines()
        return all(any(_like(line, pattern) for line in lines) for pattern in shown.splitlines())

    try:
        wait_until(matches, f"what the page shows: {shown}", seconds=120)
    except NotReadyError as error:
        pytest.fail(f"{error}; the last time it printed:\n{printed[-1]}")


def _like(line: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\.\.\.", ".*"), line) is not None


def _drain(newcomer: Newcomer, contents: ImageContents) -> None:
    (kustomization,) = blocks(GETTING_STARTED, "Drain a node", "yaml")
    newcomer.write("deploy/kustomization.yaml", kustomization)
    drain, undo = blocks(GETTING_STARTED, "Drain a node")
    draining = newcomer.start(drain)
    newcomer.deployment(EVICT)
    with newcomer.evicting(contents):
        printed = newcomer.finish(draining)
    assert "drained: no allocation holds a device" in printed.splitlines()
    assert undo.strip() in printed
    assert _running(newcomer) == 0
    newcomer.run(undo)
    assert newcomer.client.get(RULES).items == []
