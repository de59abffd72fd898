"""Writes daemons.txt, what the long-running processes are made of: `python -m tests.golden.daemons`.

For each way to run one: its stages in order, the readiness checks as `/readyz?verbose` lists them, the listeners, the
clients and the lease, and `/metrics` before anything has run. Of `/metrics`, a second way to run a process shows only
what differs.
"""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from webhook.cluster.client.rest import Cluster
from webhook.cluster.leader import Leadership
from webhook.config.serve import parse_serve
from webhook.config.workers import parse_evict, parse_patch
from webhook.daemons import evict, patch, serve
from webhook.runtime import Stage, Stages
from webhook.server.listener import Listener
from webhook.server.probes import Checks
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

DAEMONS: Final = Path(__file__).with_name("daemons.txt")
_POLICY: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
_FILE: Final = "--policy-file={folder}/policy.yaml"
_MAP: Final = "--policy-configmap=ns/policy"
_CERTIFICATES: Final = "--cert-dir={folder}"
_WAYS: Final = (
    "evict",
    "evict --mode=delegated --leader-elect",
    "evict --mode=replacement --leader-elect --leader-elect-lease=a/b",
    "evict --mode=replacement --in-tree=absent --audit-interval=0",
    f"evict {_FILE}",
    f"evict {_MAP} --leader-elect --health-probe-bind-address=0 --metrics-bind-address=0",
    "patch",
    "patch --slice-attributes",
    "patch --leader-elect",
    f"patch {_FILE} --slice-attributes --leader-elect --leader-elect-lease=a/b --kube-api-qps=0",
    f"patch {_MAP}",
    f"serve --standalone {_CERTIFICATES}",
    f"serve --standalone {_FILE} {_CERTIFICATES}",
    f"serve {_CERTIFICATES}",
    f"serve {_CERTIFICATES} {_FILE}",
    f"serve {_CERTIFICATES} {_MAP} --watch-pods --watch-patches --patch-account=a --slice-attributes",
    "serve --self-managed-certificates --watch-patches --eviction-lease=a/b --shutdown-delay=3",
)


class _Built:
    """What was built, in order."""

    def __init__(self) -> None:
        self.parts: dict[type[Any], list[Any]] = {each: [] for each in (Metrics, Checks, Listener, Cluster, Leadership)}

    def noting(self, kind: type[Any]) -> Any:
        """A constructor that takes down what it is called for."""
        construct = kind.__init__

        def note(value: Any, *arguments: Any, **named: Any) -> None:
            self.parts[kind].append(value)
            construct(value, *arguments, **named)

        return mock.patch.object(kind, "__init__", note)

    def lines(self, stages: Stages) -> Iterator[str]:
        """All but `/metrics`."""
        yield from map(_stage, stages._stages)
        [checks] = self.parts[Checks]
        yield from (f"check {name}: {'holds' if problem is None else problem}" for name, problem in checks.problems())
        yield from (f"note {name}: {'holds' if problem is None else problem}" for name, problem in checks.notes())
        for each in self.parts[Listener]:
            seconds, tls = each.settings.drain_idle_seconds, "TLS" if each._tls else "plain"
            yield f"listener {each.name}: {each._address}, idle {seconds:g} s, {tls}"
        throttles = [each._throttle for each in self.parts[Cluster]]
        for each in self.parts[Cluster]:
            throttle = each._throttle
            at = "no throttle"
            if throttle is not None:
                pace = f"{throttle._interval:g} s, {throttle._ahead:g} s ahead"
                at = f"throttle {throttles.index(throttle)} ({pace}, {throttle._clock.__qualname__})"
            yield f"client {each._user_agent}: {at}, permitted: {each._permitted.__name__}"
        for each in self.parts[Leadership]:
            lease = self.parts[Cluster].index(each._cluster)
            known = each._settings.annotations
            shown = {name: "0" if name.endswith("version") else known[name] for name in known}
            yield f"lease {each._path} by client {lease}, annotations {shown}"

    def metrics(self) -> list[str]:
        """Families in order, the samples of each sorted: their order depends on PYTHONHASHSEED."""
        [metrics] = self.parts[Metrics]
        found: list[str] = []
        samples: list[str] = []
        for line in metrics.exposition("")[0].decode().splitlines():
            if line.startswith("# HELP"):
                found += [*_ordered(samples), line]
                samples.clear()
            elif line.startswith("#"):
                found.append(line)
            else:
                samples.append(line)
        return found + _ordered(samples)


def _ordered(samples: list[str]) -> list[str]:
    """Readiness checks stay in their order; the figures of the operating system go, and so does what runs."""
    if not samples or "readiness_check" in samples[0]:
        return list(samples)
    changing = samples[0].startswith("process_") or "build_info" in samples[0]
    return sorted(each.partition("{" if "{" in each else " ")[0] if changing else each for each in samples)


def _stage(stage: Stage) -> str:
    default = Stage(name="")
    does = {
        "work": stage.work is not None,
        "start": stage.start is not default.start,
        "stop": stage.stop is not default.stop,
    }
    return f"stage {stage.name}: {' '.join(name for name, given in does.items() if given) or '-'}"


def _built(way: str, folder: Path) -> tuple[list[str], list[str]]:
    verb, *flags = way.format(folder=folder).split()
    if "--standalone" not in flags:
        flags.append(f"--kubeconfig={folder / 'kubeconfig'}")
    built = _Built()
    patches = [built.noting(kind) for kind in built.parts]
    for each in patches:
        each.start()
    try:
        if verb == "evict":
            stages = evict.Worker(parse_evict(verb, flags, {})).stages()
        elif verb == "patch":
            stages = patch.Patcher(parse_patch(verb, flags, {})).stages()
        else:
            stages = serve.Webhook(parse_serve(verb, flags, {})).stages()
        return [each.replace(str(folder), "FOLDER") for each in built.lines(stages)], built.metrics()
    finally:
        for each in patches:
            each.stop()


def daemons() -> str:
    """The text of the file."""
    lines: list[str] = []
    first: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy.yaml").write_text(_POLICY)
        for way in _WAYS:
            parts, metrics = _built(way, folder)
            known = first.setdefault(way.split()[0], metrics)
            shown = metrics if known is metrics else list(difflib.unified_diff(known, metrics, n=0, lineterm=""))[2:]
            lines += [f"== {way}", *parts, *(each for each in shown if not each.startswith("@@"))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DAEMONS.write_text(daemons())
