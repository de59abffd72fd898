"""Every mark on objects that our programs read: who may write it, and what it may do at most if it is made up.

Marks are annotations, labels, condition types, owner references and field managers. None of them proves who wrote an
object. Code that reads a further mark gives it a row here.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from webhook.api.meta import OWN_GROUP


class Mark(NamedTuple):
    """Marks by their names, on a kind of object: whose they are, and what one that is made up does."""

    names: tuple[str, ...]
    kind: str
    writer: str
    forged: str


def _own(*names: str) -> tuple[str, ...]:
    return tuple([f"{OWN_GROUP}/{name}" for name in names])


_AUTHORS: Final = "who may write the object"
_ITSELF: Final = "changes what its own object does, as admission judges it"
_SAME_CLAIM: Final = "nothing beyond the gang: the pod waits for others of its namespace, or goes with those that go"
MARKS: Final = (
    Mark(_own("data", "description", "owner", "ticket"), "rules", _AUTHORS, "is shown to people"),
    Mark(_own("evict", "evictions-per-second", "expires-at", "not-before", "scope"), "rules", _AUTHORS, _ITSELF),
    Mark(_own("confirm-impact"), "rules, patches", _AUTHORS, "must be of this object, and say no more than it hits"),
    Mark(_own("softened-from", "softened-keys"), "rules, patches", "/mutate", "makes the worker stricter"),
    Mark(_own("patch", "hardware-of"), "rules", "patch controller", "nothing: name, taint and selector decide"),
    Mark(("ownerReferences",), "rules", "patch controller", "nothing: name, taint and selector decide"),
    Mark(_own("reaction", "reasons"), "rules", "patch controller", "nothing: name, taint and selector decide"),
    Mark(_own("Eviction", "Released", "ExpiryContested"), "rules", "eviction worker", "is written again; /status only"),
    Mark(_own("EvictedPods", "CountedPods"), "rules", "eviction worker", "moves a count of its own rule; /status only"),
    Mark(("device-taint-eviction-controller",), "rules", "in-tree controller", "stops `replacement`; /status only"),
    Mark(_own("hold"), "pods, namespaces", _AUTHORS, "keeps the pods for `maxHold` at most"),
    Mark(_own("gang"), "pods", _AUTHORS, _SAME_CLAIM),
    Mark(("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"), "pods", _AUTHORS, _SAME_CLAIM),
    Mark(
        tuple([f"leaderworkerset.sigs.k8s.io/{name}" for name in ("name", "group-key", "group-index")]),
        *("pods", _AUTHORS, _SAME_CLAIM),
    ),
    Mark(("kueue.x-k8s.io/pod-group-name",), "pods", _AUTHORS, _SAME_CLAIM),
    Mark(("kubernetes.io/config.mirror",), "pods", "kubelets", "keeps its own pod, which no API call can end"),
    Mark(_own("requested-by"), "claims, templates", "/mutate", "is refused or dropped: API servers know the user"),
    Mark(_own("defaulted-tolerations"), "claims, templates", "/mutate", "is dropped: the policy decides"),
    Mark(
        ("resource.kubernetes.io/extended-resource-claim", "resource.kubernetes.io/pod-claim-name"),
        *("claims", "scheduler, claim controller", "nothing: the account that sends the claim decides"),
    ),
    Mark(_own("originals"), "slices", "/mutate", "changes attributes of devices in its own slice"),
    Mark(
        _own("mode", "in-tree", "version", "policy", "last-policy"),
        *("the Lease of `evict`", "eviction worker", "is shown; softening and doctor warn"),
    ),
    Mark(_own("policy-hash"), "policies", "export-vap", "tells people which policy it was"),
    Mark(("kubernetes.io/metadata.name",), "namespaces", "API server", "cannot be forged"),
)
PACKAGE: Final = Path(__file__).parents[3] / "webhook"
NAMES: Final = [name for mark in MARKS for name in mark.names]
KEY: Final = re.compile(r"^(?:[a-z0-9-]+\.)+(?:io|com|dev)/(?!v[0-9])[A-Za-z][A-Za-z0-9.-]*$")
"""What looks like the name of an annotation, and not like the version of an API."""
NO_MARKS: Final = {
    f"{OWN_GROUP}/degraded": "the key of a taint",
    f"{OWN_GROUP}/drain": "the key of a taint",
    "devicetaint.k8s.io/doctor": "the key of a taint",
    f"{OWN_GROUP}/device-taint-webhook": "who reports Events",
    "app.kubernetes.io/name": "a label that is only written",
    "app.kubernetes.io/component": "a label that is only written",
    "app.kubernetes.io/part-of": "a label that is only written",
    "app.kubernetes.io/managed-by": "a label that is only written",
}


def texts_of(path: Path) -> set[str]:
    """The texts in a module that look like keys; in f-strings the own group is filled in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [
                part.value
                if isinstance(part, ast.Constant)
                else OWN_GROUP
                if isinstance(part, ast.FormattedValue) and getattr(part.value, "id", "") == "OWN_GROUP"
                else "{}"
                for part in node.values
            ]
            found.add("".join(map(str, parts)))
    return {text for text in found if KEY.match(text) or text in NAMES}


@cache
def texts_of_all() -> dict[Path, set[str]]:
    return {path: texts_of(path) for path in PACKAGE.rglob("*.py")}


def test_every_key_in_the_code_has_a_row_or_is_no_mark() -> None:
    unknown = {
        f"{path.relative_to(PACKAGE)}: {text}"
        for path, texts in texts_of_all().items()
        for text in texts
        if text not in NAMES and text not in NO_MARKS
    }
    assert unknown == set()


def test_scan_finds_texts_of_either_form(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('A = f"{OWN_GROUP}/new"\nB = "new.example.com/key"\nC = "text/html"\nD = f"{OTHER}/x"\n')
    assert texts_of(module) == {f"{OWN_GROUP}/new", "new.example.com/key"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_row_is_of_a_text_that_the_code_has(name: str) -> None:
    if name == "ownerReferences":
        assert hasattr(import_module("webhook.api.rules"), "RuleOrigin")
        return
    assert name in {text for texts in texts_of_all().values() for text in texts}


def test_no_mark_has_two_rows() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert all(all(part and not part.endswith(".") for part in mark[1:]) for mark in MARKS)
