"""Fixtures that more than one folder of tests needs, and how hard the laws are tried.

HYPOTHESIS_PROFILE=ci is for what CI runs, otherwise there are as many examples as fit into an inner loop. CI tries the
same examples each time, so that a change is judged by what it changes, and more of them would only be the same again.
The inner loop tries new ones, and so does HYPOTHESIS_PROFILE=thorough, which takes half an hour. How long an example
takes is not judged: that would time the machine, which may be busy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.controlplane import assets as control_plane_assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.webhook_process import WebhookProcess
from tests.scopes import ByControlPlane, begun_in_order, may_use_planes, scope_of
from tests.tracing import COUNTED, Tracing, is_traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from tests.controlplane.assets import Assets

FAKE_NODES = ("node-0", "node-1")

_Started = TypeVar("_Started", ControlPlane, WebhookProcess)


_TRACING = Tracing()
_PLANES: list[ControlPlane] = []
"""Those of the session that run."""
_ON_PLANES = Path(__file__).parent / "apiserver"
_MIXED = frozenset({"test_demo.py", "test_overlay.py", "test_registration.py", "test_table.py"})
"""They mark those of their tests that need a control plane."""
_UNTIMED = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=20, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile(
    "ci", max_examples=50, deadline=None, suppress_health_check=_UNTIMED, derandomize=True, database=None
)
settings.register_profile("laws", settings.get_profile("ci"), max_examples=250)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "dev")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What lies in tests/apiserver needs one."""
    if item.path.is_relative_to(_ON_PLANES) and item.path.name not in _MIXED:
        item.add_marker("apiserver")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins first."""
    begun = {scope: number for number, scope in enumerate(begun_in_order(dict.fromkeys(map(_scope, items))))}
    items.sort(key=lambda item: begun[_scope(item)])


def _scope(item: pytest.Item) -> str:
    return scope_of(item.nodeid.partition("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Before anything of a test runs, its fixtures included."""
    path, slow = item.path.relative_to(Path(__file__).parent), item.get_closest_marker("slow") is not None
    untraced = COUNTED and item.get_closest_marker("untraced") is not None
    _TRACING.switch(on=is_traced(path, slow=slow, untraced=untraced))
    if not may_use_planes(_scope(item)):
        while _PLANES:  # one that is idle still uses a twentieth of a core
            plane = _PLANES.pop()
            plane.keep_logs = item.session.testsfailed > 0
            plane.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Which tests stay in one process, in their order; see tests/scopes.py."""
    config.option.loadscopereorder = False
    return ByControlPlane(config, log)


def pytest_sessionfinish() -> None:
    """Before the worker says that it has finished."""
    _TRACING.save()


@pytest.fixture(scope="session")
def assets(request: pytest.FixtureRequest) -> Assets:
    """etcd, kube-apiserver and their kin, built on first use (minutes; progress is shown)."""
    return _assets(request)


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest, assets: Assets) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver: nothing acts on objects there, so a verdict is all that happens to them."""
    with ControlPlane(assets) as control_plane:
        _PLANES.append(control_plane)
        yield from _keeping_logs_of_failures(request, control_plane)


@pytest.fixture(scope="session")
def full_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Another control plane, with controllers, scheduler, and kwok as kubelet of two nodes."""
    with ControlPlane(
        _assets(request, "kube-controller-manager", "kube-scheduler", "kwok"), controllers=[], scheduler=True, kwok=True
    ) as control_plane:
        _PLANES.append(control_plane)
        for name in FAKE_NODES:
            control_plane.add_node(name)
        yield from _keeping_logs_of_failures(request, control_plane)


@pytest.fixture(scope="session")
def webhook_server(request: pytest.FixtureRequest) -> Iterator[WebhookProcess]:
    """Our server as a process of its own, standalone, with default settings."""
    with WebhookProcess() as server:
        yield from _keeping_logs_of_failures(request, server)


def _assets(request: pytest.FixtureRequest, *programs: str) -> Assets:
    """What is found, if the given programs are among it; else the test is skipped, or fails in CI."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():  # a first build takes minutes: let its progress be seen
            found = control_plane_assets.find(
                kwok="kwok" in programs,
                cert_manager="cert-manager" in programs,
                example_driver=control_plane_assets.EXAMPLE_DRIVER in programs,
                gang_managers=control_plane_assets.JOB_SET in programs,
            )
        for name in programs:  # setup-envtest, for one, brings no controller-manager
            found.program(name)
    except AssetsUnavailableError as e:
        if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
            pytest.fail(f"in CI the control plane must be there: {e}")
        pytest.skip(f"no control plane: {e}")
    return found


def _keeping_logs_of_failures(request: pytest.FixtureRequest, started: _Started) -> Iterator[_Started]:
    failed_before = request.session.testsfailed
    yield started
    started.keep_logs = request.session.testsfailed > failed_before
