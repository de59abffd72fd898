"""docs/compatibility.md beside an API server with the defaults of its release (A7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.webhook_process import ROOT

PAGE: Final = (ROOT / "docs/compatibility.md").read_text()
GATES: Final = ("DynamicResourceAllocation", "DRADeviceTaints", "DRADeviceTaintRules")


@pytest.fixture(scope="module")
def default_plane(assets: Assets) -> Iterator[ControlPlane]:
    """Without the switches that other tests need on older releases."""
    with pytest.MonkeyPatch.context() as patch:
        for switches in ("feature_gates", "runtime_config"):
            patch.setattr(versions, switches, lambda _: {})
        plane = ControlPlane(assets)
    with plane:
        yield plane


def row(version: str) -> list[set[str]]:
    """The names in each cell of the release's row."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| 1.{versions.minor(version)} |")]
    return [set(re.findall(r"`([^`]+)`", cell)) for cell in line.strip("|").split("|")]


@pytest.mark.whole
def test_what_is_served_unasked_is_what_the_page_says(default_plane: ControlPlane) -> None:
    reply = default_plane.client.get(path(f"{versions.GROUP}/v1", "").rpartition("/v1")[0])
    served = {each["version"] for each in reply.object["versions"]} if reply.ok else set()
    assert served == row(default_plane.server_version)[1]
    listed = default_plane.client.get(f"/apis/{versions.GROUP}/v1")
    rules = listed.ok and "devicetaintrules" in {each["name"] for each in listed.object["resources"]}
    assert rules == ("v1" in row(default_plane.server_version)[2])


@pytest.mark.whole
def test_gates_that_are_on_unasked_are_those_that_the_page_says(default_plane: ControlPlane) -> None:
    """By the metric that the page has one look at."""
    found = re.findall(
        r'^kubernetes_feature_enabled\{name="(\w+)",stage="\w*"\} 1', default_plane.metrics(), re.MULTILINE
    )
    assert set(GATES) & set(found) == row(default_plane.server_version)[3]


@pytest.mark.parametrize("minor", [33, 34, 35, 36, 37])
def test_what_the_page_has_one_switch_on_is_all_that_is_off(minor: int) -> None:
    """In each release: what other tests switch on there, and nothing else."""
    version = f"1.{minor}.0"
    _, served, with_rules, on, *wanted = row(version)
    assert with_rules == set(versions.rule_versions(version))
    switched = wanted[0] | wanted[1]
    assert {name for name in switched if name.startswith("D")} == set(versions.feature_gates(version))
    assert on == set(GATES) - switched - ({"DRADeviceTaintRules"} if minor < 35 else set()), "it came with 1.35"
    assert (wanted[1] & with_rules == set()) == bool(served & with_rules)
