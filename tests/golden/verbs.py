"""Writes verbs/*.txt, what verbs print about 30 clusters and ask of them: `python -m tests.golden.verbs`."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import yaml

from tests.builders import DRIVER, NOW_TEXT
from tests.caches import modules
from tests.golden.dumps import POLICIES, Dump
from tests.unit.commands.api_server import bare, serving
from tests.unit.commands.rule_server import GROUP, NODES, RULES, RuleServer
from tests.unit.commands.standing_clock import Then
from webhook import cli
from webhook.commands.preview import from_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

DUMPS: Final = 30
FOLDER: Final = Path(__file__).with_name("verbs")
_FORMATS: Final = ("text", "json", "junit", "sarif", "github", "gitlab", "yaml")
_SERVER: Final = re.compile(r"http://127\.0\.0\.1:\d+")
_PATCHES: Final = "/apis/devicetaint.io/v1alpha1/resourceslicepatches"


def golden(seed: int) -> str:
    """Command lines over one cluster: exit code, standard output and standard error of each, and requests."""
    dump = Dump(seed)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), _still():
        folder = Path(name)
        folder.joinpath("cluster.json").write_text(
            json.dumps({"kind": "List", "apiVersion": "v1", "items": dump.objects})
        )
        folder.joinpath("new.yaml").write_text(yaml.safe_dump(dump.candidate()))
        folder.joinpath("manifests.yaml").write_text(yaml.safe_dump_all([*dump.templates, *dump.rules, *dump.patches]))
        folder.joinpath("policy.yaml").write_text(dump.policy.read_text())
        folder.joinpath("other.yaml").write_text(POLICIES[(seed + 1) % len(POLICIES)].read_text())
        parts = [_run(words, folder) for words in _offline(seed, dump)]
        tables = _tables(dump)
        with serving(tables, folder):
            for words in _online(seed, dump):
                tables.asked.clear()
                tables.sent.clear()
                parts.append(_run([*words, "--kubeconfig", "kubeconfig"], folder))
                parts += [f"> GET {each}\n" for each in sorted({*tables.asked})]
                parts += [
                    f"> {method} {target} {json.dumps(body, sort_keys=True)}\n" for method, target, body in tables.sent
                ]
        return "".join(parts)


def _offline(seed: int, dump: Dump) -> Iterator[list[str]]:
    form, simple = _FORMATS[seed % len(_FORMATS)], ("text", "json", "yaml")[seed % 3]
    at = ["--time", NOW_TEXT]
    pod = dump.pods[0]["metadata"]
    yield ["check", "manifests.yaml", "--policy", "policy.yaml", *at, "-o", form]
    yield ["audit", "--dump", "cluster.json", *at, "-o", form]
    yield ["preview", "new.yaml", "--dump", "cluster.json", *at, "-o", simple]
    yield ["status", "--dump", "cluster.json", "--pods", *at, "-o", simple]
    yield ["explain", "pod", pod["name"], "-n", pod["namespace"], "--dump", "cluster.json", *at, "-o", simple]
    yield ["explain", "manifests.yaml", "--policy", "policy.yaml", *at, "-o", simple]
    yield ["diff", "policy.yaml", "other.yaml", "--dump", "cluster.json", *at, "-o", simple]
    if seed < len(POLICIES):
        yield ["export-vap", "--policy", "policy.yaml", "-o", "yaml"]
        yield ["test", str(dump.policy.parent), "-o", form]


def _online(seed: int, dump: Dump) -> Iterator[list[str]]:
    device, taint = f"{DRIVER}/node-0/gpu-0", "example.com/ecc=1:NoSchedule"
    dry = ["--dry-run=client", "-o", "yaml"] if seed % 2 else []
    match seed % 3:
        case 0:
            yield ["list", "-o", ("wide", "json", "yaml", "name")[seed // 3 % 4]]
            yield ["taint", device, taint, "--reason", "fans", *dry]
            yield ["untaint", device, "example.com/ecc-"]
        case 1:
            yield ["status", "--pods"]
            yield ["preview", "new.yaml"]
        case _:
            yield ["audit", "-o", "json"]
            yield ["explain", "devicetaintrule", dump.rules[0]["metadata"]["name"] if dump.rules else "none"]
            yield ["drain", "node-1", "--dry-run=client"]


class _Server(RuleServer):
    """What it has stored has a uid and a version."""

    def write(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        answer = super().write(method, target, body)
        for each in self.collections[RULES]:
            each["metadata"] = {"uid": "made", "resourceVersion": "5", **each["metadata"]}
        return answer


def _tables(dump: Dump) -> RuleServer:
    tables = _Server()
    tables.collections = {
        RULES: [bare(each) for each in dump.rules],
        f"{GROUP}/v1/resourceslices": [bare(each) for each in dump.slices],
        f"{GROUP}/v1/resourceclaims": [bare(each) for each in dump.claims],
        f"{GROUP}/v1/resourceclaimtemplates": [bare(each) for each in dump.templates],
        f"{GROUP}/v1/deviceclasses": [bare(each) for each in dump.classes],
        _PATCHES: [bare(each) for each in dump.patches],
        "/api/v1/pods": [bare(each) for each in dump.pods],
        "/api/v1/namespaces": [bare(each) for each in dump.namespaces],
        "/apis/policy/v1/poddisruptionbudgets": [bare(each) for each in dump.budgets],
        NODES: [{"metadata": {"name": name}} for name in ("node-0", "node-1", "node-2")],
    }
    served = ("resourceslices", "resourceclaims", "resourceclaimtemplates", "devicetaintrules", "deviceclasses")
    tables.objects = {
        f"{GROUP}/v1": {"resources": [{"name": name} for name in served]},
        "/apis/devicetaint.io/v1alpha1": {"resources": [{"name": "resourceslicepatches"}]},
        "/api/v1/namespaces/device-taint-webhook/configmaps/device-taint-webhook-policy": dump.config_map,
    }
    return tables


def _run(words: list[str], folder: Path) -> str:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(words)
    said, complained = (each.buffer.getvalue().decode() for each in (out, err))
    text = f"$ {' '.join(words)}\n{said}"
    text += "".join(f"! {line}\n" for line in complained.splitlines()) + f"= {code}\n"
    text = _SERVER.sub("http://server", text.replace(str(folder), "."))
    return text.replace(str(Path(__file__).parents[2]), "ROOT")


@contextlib.contextmanager
def _still() -> Iterator[None]:
    """No clock of the shell moves, nothing of the environment counts, and reading takes no time worth telling."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(from_cluster, "_QUIET_SECONDS", math.inf))
        for module in modules():
            if vars(module).get("datetime") is datetime:
                stack.enter_context(mock.patch.object(module, "datetime", Then))
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "200"}, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["device-taint-webhook"]))
        yield


def file_of(seed: int) -> Path:
    """Where it is kept."""
    return FOLDER / f"{seed:02}.txt"


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for seed in range(DUMPS):
        file_of(seed).write_text(golden(seed))


if __name__ == "__main__":
    main()
