"""A policy of many rules, none of which decides the timed claims: each of their tolerations walks them all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RULES = 50
MANY_RULES = 1000


def write(folder: Path, rules: int) -> Path:
    """The policy file (JSON is YAML)."""
    document = {
        "apiVersion": "policy.devicetaint.io/v1alpha1",
        "kind": "DeviceTaintPolicy",
        "rules": [_rule(n) for n in range(rules)],
    }
    path = folder / f"policy-{rules}.yaml"
    path.write_text(json.dumps(document))
    return path


def _rule(n: int) -> dict[str, Any]:
    """Every other rule is about somebody else; the rest match the claim and miss only its tolerations."""
    match: dict[str, Any] = {"tolerations": {"keys": [f"team-{n}.example.com/*"], "effects": ["NoExecute"]}}
    if n % 2:
        match["requesters"] = {"groups": [f"team-{n}"]}
    else:
        match["namespaces"] = {"names": ["ml-*"]}
    return {"name": f"team-{n}", "action": "deny", "match": match, "message": f"ask team {n}"}
