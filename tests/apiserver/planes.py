"""Control planes that a module or a folder has to itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.apiserver.policy.stage import RestartablePlane, Stage
from tests.conftest import _assets
from tests.controlplane import versions


@contextmanager
def own_plane(
    request: pytest.FixtureRequest,
    *programs: str,
    since: int = 0,
    audit_policy: dict[str, Any] | None = None,
    **arguments: Any,
) -> Iterator[RestartablePlane]:
    """Runs the programs that are named, beside etcd and API server; skipped on releases before 1.`since`."""
    assets = _assets(request, *programs)
    if versions.minor(assets.version) < since:
        pytest.skip(f"not before Kubernetes 1.{since}")
    if audit_policy is not None:
        file = request.getfixturevalue("tmp_path_factory").mktemp("audit") / "audit-policy.yaml"
        file.write_text(json.dumps(audit_policy))  # JSON is YAML
        flags = [f"--audit-policy-file={file}", *arguments.get("api_server_arguments", ())]
        arguments |= {"audit": True, "api_server_arguments": flags}
    run: dict[str, Any] = {"scheduler": "kube-scheduler" in programs, "kwok": "kwok" in programs}
    run |= {"controllers": []} if "kube-controller-manager" in programs else {}
    failed_before = request.session.testsfailed
    with RestartablePlane(assets, **{**run, **arguments}) as plane:
        yield plane
        plane.keep_logs = request.session.testsfailed > failed_before


@contextmanager
def own_stage(request: pytest.FixtureRequest, *programs: str, **arguments: Any) -> Iterator[Stage]:
    """The same with the webhook installed, but not running."""
    with own_plane(request, *programs, **arguments) as plane:
        stage = Stage(plane)
        stage.install()
        yield stage
