"""The project's own webhook configurations, registered as they are shipped; only where to call is replaced.

Whether the API server calls a webhook is not guessed from verdicts: it counts its calls itself, per entry.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError, wait_until

FILES = ("base/validating-webhook.yaml", "base/mutating-webhook.yaml")
FIELD_MANAGER = "test-registration"
MOST_SECONDS = 30
"""The most that an API server gives a call."""

_PLURALS = {
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}
# What the API server's metrics call the two.
_TYPES = {"ValidatingWebhookConfiguration": "validating", "MutatingWebhookConfiguration": "admit"}
_TAINT = {"key": "probe.example.com/registered", "effect": "NoSchedule"}
_TOLERATION = {"key": "probe.example.com/registered", "operator": "Exists"}

_TOO_LATE = "context deadline exceeded"

_SAMPLE = re.compile(r"^apiserver_admission_webhook_(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Entry = tuple[str, str]
"""("validating" | "admit", name of the entry)"""


@dataclass(frozen=True, slots=True)
class Calls:
    """How often the API server has called each entry since it started."""

    answered: Counter[Entry] = field(default_factory=Counter)
    failed: Counter[Entry] = field(default_factory=Counter)
    """Not reached, timed out, or answered with something other than a review."""


def configurations(manifests_dir: Path, files: Iterable[str] = FILES) -> list[dict[str, Any]]:
    """The webhook configurations in the manifests, unchanged."""
    documents = [d for name in files for d in yaml.safe_load_all((manifests_dir / name).read_text())]
    return [d for d in documents if d and d.get("kind") in _PLURALS]


def register(
    plane: ControlPlane,
    manifests_dir: Path,
    base_url: str,
    ca_pem: bytes,
    *,
    files: Iterable[str] = FILES,
    probes: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
    timeout_seconds: int | None = None,
) -> list[dict[str, Any]]:
    """Registers what lies in the manifests for the server at base_url, and waits until it is called.

    Returns the configurations as sent, for unregister. probes are (collection, object) to create as dry runs; at
    least one entry of each configuration must match one of them. Field names unknown to the API server are
    refused. timeout_seconds (at most 30) is for calls that must not fail because the machine is busy; without it each
    entry has the time that it is shipped with.

    Raises: NotReadyError if an entry of each is not called in time, or if a call fails.
    """
    wanted = [_pointed_at(c, base_url, ca_pem) for c in configurations(manifests_dir, files)]
    assert wanted, f"no webhook configuration in {manifests_dir}"
    if timeout_seconds is not None:
        for webhook in (webhook for configuration in wanted for webhook in configuration["webhooks"]):
            webhook["timeoutSeconds"] = timeout_seconds
    chosen = list(probes) if probes is not None else default_probes(plane)
    before = calls(plane)
    for configuration in wanted:
        _ = plane.client.apply(_path(configuration), configuration, field_manager=FIELD_MANAGER).object
    try:
        _wait_called(plane, wanted, chosen, before, base_url)
    except BaseException:
        _delete(plane, wanted)
        raise
    return wanted


def unregister(
    plane: ControlPlane,
    registered: Iterable[Mapping[str, Any]],
    *,
    probes: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
) -> None:
    """Takes back what register returned, and waits until the API server has stopped calling it."""
    gone = list(registered)
    _delete(plane, gone)
    chosen = list(probes) if probes is not None else default_probes(plane)
    entries = [entry for configuration in gone for entry in _entries(configuration)]

    def quiet() -> bool:
        before = calls(plane)
        _send(plane, chosen)
        after = calls(plane)
        return all(before.answered[e] == after.answered[e] and before.failed[e] == after.failed[e] for e in entries)

    wait_until(quiet, "webhooks no longer called")


@contextlib.contextmanager
def registered(
    plane: ControlPlane,
    manifests_dir: Path,
    base_url: str,
    ca_pem: bytes,
    *,
    files: Iterable[str] = FILES,
    timeout_seconds: int | None = MOST_SECONDS,
) -> Iterator[None]:
    """register for the length of a block; unless it is about time, with as much of it as a call may have."""
    there = register(plane, manifests_dir, base_url, ca_pem, files=files, timeout_seconds=timeout_seconds)
    try:
        yield
    finally:
        unregister(plane, there)


def calls(plane: ControlPlane) -> Calls:
    """The API server's own count of its calls, per entry."""
    total: Counter[Entry] = Counter()
    failed: Counter[Entry] = Counter()
    for metric, text, value in _SAMPLE.findall(plane.metrics()):
        labels = dict(_LABEL.findall(text))
        entry = (labels.get("type", ""), labels.get("name", ""))
        if metric == "request_total":
            total[entry] += int(float(value))
        elif metric == "fail_open_count" or (metric == "rejection_count" and labels["error_type"] != "no_error"):
            failed[entry] += int(float(value))
    return Calls(answered=total - failed, failed=failed)


def default_probes(plane: ControlPlane) -> list[tuple[str, Mapping[str, Any]]]:
    """One valid object of each kind that device taints know, with a taint or a toleration."""
    version = f"{versions.GROUP}/{versions.api_versions(plane.server_version)[0]}"
    rule_version = f"{versions.GROUP}/{versions.rule_versions(plane.server_version)[0]}"
    request: dict[str, Any] = {"deviceClassName": "probe.example.com", "tolerations": [_TOLERATION]}
    spec = {"devices": {"requests": [{"name": "probe", "exactly": request}]}}
    pool = {"name": "probe", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "probe", "taints": [_TAINT]}
    driver = "probe.example.com"
    return [
        _probe(version, "ResourceClaim", spec, "default"),
        _probe(version, "ResourceClaimTemplate", {"spec": spec}, "default"),
        _probe(version, "ResourceSlice", {"driver": driver, "pool": pool, "allNodes": True, "devices": [device]}),
        _probe(rule_version, "DeviceTaintRule", {"deviceSelector": {"driver": driver}, "taint": _TAINT}),
    ]


def _probe(api_version: str, kind: str, spec: Mapping[str, Any], namespace: str = "") -> tuple[str, Mapping[str, Any]]:
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "probe"}, "spec": spec}
    return path(api_version, kind.lower() + "s", namespace=namespace), obj


def _pointed_at(configuration: Mapping[str, Any], base_url: str, ca_pem: bytes) -> dict[str, Any]:
    """A copy with other clientConfigs, and nothing else touched."""
    changed = copy.deepcopy(dict(configuration))
    bundle = base64.b64encode(ca_pem).decode()
    for webhook in changed["webhooks"]:
        service = webhook["clientConfig"]["service"]
        webhook["clientConfig"] = {"url": base_url + service.get("path", "/"), "caBundle": bundle}
    return changed


def _path(configuration: Mapping[str, Any]) -> str:
    plural = _PLURALS[configuration["kind"]]
    return path(configuration["apiVersion"], plural, name=configuration["metadata"]["name"])


def _entries(configuration: Mapping[str, Any]) -> list[Entry]:
    kind = _TYPES[configuration["kind"]]
    return [(kind, webhook["name"]) for webhook in configuration["webhooks"]]


def _send(plane: ControlPlane, probes: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    for collection, obj in probes:
        plane.client.create(collection, obj, dry_run=True)


def _wait_called(
    plane: ControlPlane,
    wanted: Iterable[Mapping[str, Any]],
    probes: list[tuple[str, Mapping[str, Any]]],
    before: Calls,
    base_url: str,
) -> None:
    """The API server takes a configuration over whole, so one of its entries speaks for all.

    Calls to another address than base_url fail while it has yet to hear that a registration has moved. One that took
    too long only tells of a busy machine: it is tried again.
    """
    groups = [_entries(configuration) for configuration in wanted]

    def called() -> bool:
        nonlocal before
        _send(plane, probes)
        now = calls(plane)
        failed = [entry for group in groups for entry in group if now.failed[entry] > before.failed[entry]]
        if failed:
            failure = _last_failure(plane)
            if base_url in failure and _TOO_LATE not in failure:
                names = ", ".join(f"{name} ({kind})" for kind, name in failed)
                raise NotReadyError(f"calls to {names} fail: {failure}")
            before = now
            return False
        return all(any(now.answered[entry] > before.answered[entry] for entry in group) for group in groups)

    wait_until(called, f"webhooks called for a probe, of each of {groups}")


def _last_failure(plane: ControlPlane) -> str:
    log = plane.processes["kube-apiserver"].log.read_text(errors="replace")
    lines = [line for line in log.splitlines() if "Failed calling webhook" in line]
    return lines[-1] if lines else "the API server's log does not say why"


def _delete(plane: ControlPlane, gone: Iterable[Mapping[str, Any]]) -> None:
    for configuration in gone:
        plane.client.delete(_path(configuration))
