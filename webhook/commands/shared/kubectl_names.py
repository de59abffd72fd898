"""kubectl's ways to name an object: `TYPE/NAME`, whatever its type is called, as `kubectl get -o name` prints it."""

from __future__ import annotations

import re
from typing import Final

NODES: Final = frozenset({"node", "nodes", "no"})
RULES: Final = frozenset({"devicetaintrule", "devicetaintrules"})
_QUALIFIED: Final = re.compile(r"([a-z]+)(\.v\d\w*)?(\.|\.resource\.k8s\.io)?")


def type_in(word: str) -> str:
    """A type in lower case and without its group and version."""
    found = _QUALIFIED.fullmatch(word.lower())
    return word if found is None else found[1]


def name_in(word: str, types: frozenset[str]) -> str:
    """The name in `TYPE/NAME` of one of these types; empty if the word is anything else."""
    kind, _, name = word.partition("/")
    return name if type_in(kind) in types and "/" not in name else ""
