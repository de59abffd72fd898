"""One control plane, with everything in it, for all pages; each test begins and ends without an installation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.pages.fleet import NODE, Fleet
from tests.apiserver.pages.following import Reader
from tests.apiserver.planes import own_plane
from tests.controlplane.egress import EgressProxy
from tests.controlplane.plane import ControlPlane


@pytest.fixture(scope="package")
def egress() -> Iterator[EgressProxy]:
    """Where Services of the control plane lead; pages whose webhooks have URLs do not need it."""
    with tempfile.TemporaryDirectory(prefix="egress-") as folder, EgressProxy(Path(folder)) as proxy:
        yield proxy


@pytest.fixture(scope="package")
def page_plane(request: pytest.FixtureRequest, egress: EgressProxy) -> Iterator[ControlPlane]:
    """Controllers, scheduler, and a kubelet of the node that the pages name."""
    programs = ("kube-controller-manager", "kube-scheduler", "kwok")
    with own_plane(request, *programs, since=37, api_server_arguments=[egress.argument]) as plane:
        plane.add_node(NODE)
        yield plane


@pytest.fixture
def reader(page_plane: ControlPlane, tmp_path: Path) -> Iterator[Reader]:
    """Who follows a page."""
    reader = Reader(page_plane, tmp_path)
    yield reader
    reader.uninstall()


@pytest.fixture
def fleet(reader: Reader) -> Iterator[Fleet]:
    """Two pods that use devices."""
    with Fleet(reader) as fleet:
        yield fleet
