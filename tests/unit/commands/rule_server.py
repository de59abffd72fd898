"""An API server that keeps DeviceTaintRules, for the verbs that write them, and a runner of verbs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.builders import make_device, make_meta, make_rule, make_slice, make_taint
from tests.unit.commands.api_server import ApiServer, bare
from webhook import cli

GROUP: Final = "/apis/resource.k8s.io"
RULES: Final = f"{GROUP}/v1/devicetaintrules"
NODES: Final = "/api/v1/nodes"
ECC: Final = "example.com/ecc"
SERVED: Final = ("resourceslices", "resourceclaims", "devicetaintrules")


def rule_on(name: str, *, key: str = ECC, effect: str = "NoSchedule", selector: Any = "default", **meta: Any) -> Any:
    """A stored rule; for one device unless told otherwise."""
    metadata = make_meta(name, uid=f"uid-of-{name}", resourceVersion="5", generation=1, **meta)
    return make_rule(selector=selector, taint=make_taint(key, effect), meta=metadata)


def status(code: int, reason: str, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


class RuleServer(ApiServer):
    """Two nodes with two devices each. Rules are created, replaced and deleted as a server does it."""

    def __init__(self) -> None:
        super().__init__()
        slices = [
            make_slice(
                [make_device(f"gpu-{number}") for number in range(2)],
                pool=node,
                node_name=node,
                meta=make_meta(f"{node}-gpu"),
            )
            for node in ("node-0", "node-1")
        ]
        self.collections = {
            RULES: [],
            f"{GROUP}/v1/resourceslices": [bare(each) for each in slices],
            f"{GROUP}/v1/resourceclaims": [],
            NODES: [{"metadata": {"name": "node-1"}}],
            "/api/v1/pods": [],
        }
        self.objects = {f"{GROUP}/v1": {"resources": [{"name": name} for name in SERVED]}}
        self.refusals: list[tuple[int, Any]] = []
        """Answers to the next writes."""
        self.lasts: int | None = None
        """How many writes have an answer; None for all."""
        self.forbidden: set[str] = set()
        """Paths that may not be read."""
        self.forbids = "is forbidden"

    def keep(self, *rules: Any) -> None:
        self.collections[RULES] = [bare(each) for each in rules]

    @property
    def rules(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in self.collections[RULES]}

    def answer(self, target: str) -> tuple[int, Any]:
        path = urlsplit(target).path
        collection, _, name = path.rpartition("/")
        if path in self.forbidden:
            self.asked.append(target)
            return status(403, "Forbidden", f"{name} {self.forbids}")
        if collection == RULES:
            self.asked.append(target)
            return (200, self.rules[name]) if name in self.rules else status(404, "NotFound", f'"{name}" not found')
        if collection == NODES and path not in self.objects:
            return status(404, "NotFound", f'nodes "{name}" not found')
        return super().answer(target)

    def write(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        sent = json.loads(body)
        self.sent.append((method, target, sent))
        if self.lasts is not None:
            if not self.lasts:
                raise TimeoutError  # a handler closes the connection
            self.lasts -= 1
        if self.refusals:
            return self.refusals.pop(0)
        dry = "dryRun" in parse_qs(urlsplit(target).query) or sent.get("dryRun")
        name = urlsplit(target).path.rpartition("/")[2] if method != "POST" else sent["metadata"]["name"]
        known = self.rules.get(name)
        if method == "POST" and known is not None:
            return status(409, "AlreadyExists", f'devicetaintrules.resource.k8s.io "{name}" already exists')
        if method != "POST" and known is None:
            return status(404, "NotFound", f'devicetaintrules.resource.k8s.io "{name}" not found')
        if method == "DELETE" and known is not None:
            meta = known["metadata"]
            if sent["preconditions"] != {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}:
                return status(409, "Conflict", "the precondition failed")
        others = [each for each in self.collections[RULES] if each["metadata"]["name"] != name]
        if method == "DELETE":
            stored, answer = others, {"kind": "Status", "status": "Success"}
        else:
            stored, answer = [*others, sent], sent
        if not dry:
            self.collections[RULES] = stored
        return 200, answer


class VerbRunner:
    """Runs a verb on a server, returns exit code, output and errors."""

    def __init__(self, server: RuleServer, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self.capsys = capsys
        self.rounds: list[Callable[[], None]] = []
        """What happens between two looks of a verb that watches."""

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = cli.main(list(words))
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def output(self, *words: str) -> str:
        """The output of a run without fault."""
        code, output, error = self(*words)
        assert (code, error) == (0, ""), (output, error)
        return output
