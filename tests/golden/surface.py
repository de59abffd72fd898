"""Writes surface.txt, everything of the product that users rely on by name: `python -m tests.golden.surface`.

It names no module and no class, so moving code leaves it as it is. A change of it is a change for users, and is told in
the changelog.
"""

from __future__ import annotations

import ast
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.caches import modules
from tests.unit.eviction.world import World
from webhook.api.names import OWN_NAMESPACE
from webhook.commands.verbs import VERBS, command_line_of
from webhook.config.texts import VARIABLES
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.events import PodEventKind
from webhook.eviction.expiry import ExpiryReason
from webhook.eviction.modes import Mode
from webhook.eviction.released import ReleasedReason
from webhook.patches.status import REASONS
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.workers import AuditMetrics, PatchMetrics, ReactionMetrics
from webhook.validation.releases import Release

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
SURFACE: Final = Path(__file__).with_name("surface.txt")
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "log"})
_NAME: Final = re.compile(r"[a-z.-]*devicetaint\.io/[\w.-]+")
_WORD: Final = re.compile(r"(?:[A-Z][a-z]+){2,}")
_PATH: Final = re.compile(r"/(?:validate|mutate|livez|readyz|healthz|metrics)\S*")
_ROLES: Final = ("Role", "ClusterRole")


def surface() -> str:
    """All of it, in sections."""
    with mock.patch.dict(os.environ, {VARIABLES[0]: OWN_NAMESPACE}):  # wherever this runs, in a pod as well
        sections = {
            "flags: verb, flag, variable, default, help": _flags(),
            "metrics: name, kind, labels, help": _metrics(),
            "log messages: level, message, fields": _log_messages(),
            "reasons of conditions and Events": _reasons(),
            "annotations, labels, finalizers, groups": _names(),
            "paths": _constants(_PATH),
            "roles: kind, name, verbs, resources": _roles(),
        }
    written = "\n".join(
        f"# {title}\n" + "".join(f"{line}\n" for line in sorted({*lines})) for title, lines in sections.items()
    )
    _nodes.cache_clear()  # they are large
    return written


def _flags() -> Iterator[str]:
    for verb in VERBS:
        parser = command_line_of(verb)
        yield f"{verb} | {parser.description}"
        for action in parser._actions:
            if action.dest == "help":
                continue
            names = ", ".join(action.option_strings) or action.metavar
            values = parser.values.get(action.dest, ()) or tuple(map(str, action.choices or ()))
            shown = (
                names,
                parser.variables.get(action.dest, ""),
                _default(action.default),
                "|".join(values),
                action.help or "",
            )
            yield " | ".join([verb, *(" ".join(str(each).split()) for each in shown)])


def _default(value: Any) -> str:
    """It is empty where there is none."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return f"1.{value.minor}" if isinstance(value, Release) else repr(value)


def metrics_text(mode: Mode) -> str:
    """The exposition of everything that `serve`, `patch`, and `evict` in that mode can have."""
    metrics = Metrics(version="0", resources=())
    metrics.watch_inventory(lambda: True, {"resourceslices": lambda: 0})
    metrics.watch_readiness(lambda: [("policy", None)])
    metrics.watch_requesters(lambda: 0)
    metrics.watch_authors(lambda: True)
    metrics.policy.candidate_load_success = True
    AuditMetrics(metrics.registry)
    patches = PatchMetrics(metrics.registry, REASONS)
    patches.watch(lambda: 0, lambda: 0, dict)
    patches.watch_slices(lambda: 0)
    ReactionMetrics(metrics.registry)
    # As text: families without a sample yet have their names there too.
    return metrics.exposition("")[0].decode() + generate_latest(World(mode).registry).decode()


def _metrics() -> Iterator[str]:
    for family in text_string_to_metric_families(metrics_text(Mode.REPLACEMENT)):
        labels = sorted({label for sample in family.samples for label in sample.labels})
        yield f"{family.name} | {family.type} | {', '.join(labels)} | {family.documentation}"


def _trees() -> Iterator[ast.Module]:
    for file in sorted((ROOT / "webhook").rglob("*.py")):
        yield ast.parse(file.read_text())


@cache
def _nodes() -> tuple[ast.AST, ...]:
    """All that several sections look through, parsed once."""
    kinds = (ast.Call, ast.ClassDef, ast.Constant)
    return tuple(node for tree in _trees() for node in ast.walk(tree) if isinstance(node, kinds))


def _log_messages() -> Iterator[str]:
    for node in _nodes():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in {"log", "_log", "logger"}
        ):
            message = node.args[1 if node.func.attr == "log" else 0]
            extra = next((each.value for each in node.keywords if each.arg == "extra"), None)
            for text in _texts(message):
                yield f"{node.func.attr} | {text} | {', '.join(_fields(extra))}"


def _texts(node: ast.expr) -> Iterator[str]:
    """The constants of an expression; a word for one without any."""
    found = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    yield from found or ["(of the data)"]


def _fields(extra: ast.expr | None) -> list[str]:
    if not isinstance(extra, ast.Dict):
        return [] if extra is None else ["(of the data)"]
    named = [each.value for each in extra.keys if isinstance(each, ast.Constant)]
    return sorted(map(str, named)) + ["(of the data)"] * any(each is None for each in extra.keys)


def _reasons() -> Iterator[str]:
    for each in (*ConditionReason, *PodEventKind, *ExpiryReason, *ReleasedReason):
        yield each.value
    yield from REASONS
    classes = {each.name for each in _nodes() if isinstance(each, ast.ClassDef)}
    yield from (each for each in _constants(_WORD) if each not in classes or each.startswith(("Device", "Resource")))


def _constants(pattern: re.Pattern[str]) -> Iterator[str]:
    """Texts in the code that are a match; docstrings are none."""
    for node in _nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value):
            yield node.value


def _names() -> Iterator[str]:
    for module in modules():
        yield from _matches(vars(module).values())


def _matches(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str) and _NAME.fullmatch(value):
            yield str(value)
        elif isinstance(value, tuple | list | frozenset):
            yield from _matches(value)


def _roles() -> Iterator[str]:
    for file in sorted((ROOT / "manifests").rglob("*.yaml")):
        if "helm" in file.parts:
            continue  # its templates are compared with these elsewhere
        for document in yaml.safe_load_all(file.read_text()):
            if isinstance(document, dict) and document.get("kind") in _ROLES:
                for rule in document.get("rules", ()):
                    shown = {key: sorted(value) for key, value in sorted(rule.items())}
                    yield f"{document['kind']} | {document['metadata']['name']} | {json.dumps(shown)}"


def main() -> None:
    """Write the file."""
    SURFACE.write_text(surface())


if __name__ == "__main__":
    main()
