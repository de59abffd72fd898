"""docs/getting-started.md, followed from a release that was built to the removal, with nothing but its files."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from release.bases import NotHereError
from release.images import need_tools
from tests.apiserver.chart.helming import helm_program
from tests.apiserver.pages.fleet import NAMES, Fleet
from tests.apiserver.pages.following import GETTING_STARTED, blocks
from tests.apiserver.pages.newcomer import EVICT, Newcomer
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.contents import ImageContents
    from tests.controlplane.egress import EgressProxy
    from tests.controlplane.plane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.whole]

_AMISS: Final = re.compile(r"^(?:warn|fail) +([^:]+):", re.MULTILINE)
DOCTOR: Final = "kubectl dtaint doctor --wait 300"


@pytest.fixture(scope="module")
def newcomer(page_plane: ControlPlane, egress: EgressProxy) -> Iterator[Newcomer]:
    """In the folder of the release, with the command line on PATH and the image in the registry."""
    try:
        need_tools()
    except NotHereError as error:
        pytest.skip(f"the image was not built: {error}")
    with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as folder:
        newcomer = Newcomer(page_plane, egress, helm_program(), Path(folder))
        newcomer.run(*blocks(GETTING_STARTED, "Get a release"))
        yield newcomer


@pytest.fixture
def fleet(newcomer: Newcomer) -> Iterator[Fleet]:
    """Two pods that use devices; afterwards there is no installation."""
    with Fleet(newcomer) as fleet:
        yield fleet
    newcomer.uninstall()


def test_who_follows_the_page_gets_what_it_says_at_each_step(newcomer: Newcomer, fleet: Fleet) -> None:
    (install,) = blocks(GETTING_STARTED, "Install")
    installing = newcomer.start(install)
    with newcomer.image(EVICT) as contents, newcomer.serving(contents):
        printed = newcomer.finish(installing)
        assert _AMISS.findall(printed) == [], printed
        _first_policy(newcomer)
        _preview(newcomer)
        with newcomer.evicting(contents):
            printed = newcomer.run(*blocks(GETTING_STARTED, "Observe"))
        assert "ObserveOnly" in printed.splitlines()
        assert "2 pods" in printed
        assert fleet.running() == NAMES
        _evict(newcomer, fleet, contents)
        newcomer.run(*blocks(GETTING_STARTED, "Remove it again"))
        assert newcomer.left() == ""


def test_the_chart_of_the_release_installs_evicts_and_is_removed_as_the_page_says(
    newcomer: Newcomer, fleet: Fleet
) -> None:
    install, act, remove = blocks(GETTING_STARTED, "With Helm")
    assert "0 chart(s) failed" in newcomer.run("helm lint device-taint-webhook-*.tgz")
    newcomer.run(install)
    with newcomer.image(EVICT) as contents, newcomer.serving(contents):
        assert _AMISS.findall(newcomer.run(DOCTOR)) == []
        newcomer.run(act)
        _preview(newcomer)
        newcomer.run("kubectl apply -f rule.yaml")
        with newcomer.evicting(contents):
            wait_until(lambda: fleet.running() == set(), "the pods are evicted", seconds=240)
        with newcomer.cleaning(contents) as kubelet:
            newcomer.run(remove)
    assert kubelet.faults == []
    assert "deleted, so API servers stop calling the webhook" in kubelet.output["cleanup"]
    assert newcomer.left() == ""


def _first_policy(newcomer: Newcomer) -> None:
    """It warns, and then it refuses."""
    heading = "A first policy"
    policy, claim = blocks(GETTING_STARTED, heading, "yaml")
    newcomer.write_here("policy.yaml", policy)
    newcomer.write_here("claim.yaml", claim)
    create, try_it, warned, audit, enforce, try_again, refused = blocks(GETTING_STARTED, heading)
    newcomer.run(create)
    _wait_printed(newcomer, try_it, warned)
    newcomer.run(audit)
    newcomer.run(enforce)
    _wait_printed(newcomer, try_again, refused)


def _wait_printed(newcomer: Newcomer, command: str, shown: str) -> None:
    """Until a command prints what the page shows, where "..." stands for anything."""
    printed: list[str] = []

    def matches() -> bool:
        printed.append(newcomer.run(command, codes={0, 1}))
        lines = printed[-1].splitlines()
        return all(any(_like(line, pattern) for line in lines) for pattern in shown.splitlines())

    wait_until(matches, f"what the page shows: {shown}", seconds=60)


def _like(line: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\.\.\.", ".*"), line) is not None


def _preview(newcomer: Newcomer) -> None:
    (rule,) = blocks(GETTING_STARTED, "A first preview", "yaml")
    newcomer.write_here("rule.yaml", rule)
    printed = newcomer.run(*blocks(GETTING_STARTED, "A first preview"))
    assert "2 pods" in printed
    assert {"ml/train-0", "ml/train-1"} <= set(printed.split())


def _evict(newcomer: Newcomer, fleet: Fleet, contents: ImageContents) -> None:
    which, evict, done = blocks(GETTING_STARTED, "Evict")
    assert re.search(r"^firmware +true$", newcomer.run(which), re.MULTILINE)
    before = newcomer.deployment(EVICT)
    evicting = newcomer.start(evict)
    wait_until(lambda: newcomer.deployment(EVICT) != before, "the mode is another", seconds=600)
    with newcomer.evicting(contents):
        printed = newcomer.finish(evicting)
        assert printed.splitlines()[-1].endswith("condition met")
        assert fleet.running() == set()
        newcomer.run(done)
