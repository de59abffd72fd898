"""The ValidatingAdmissionPolicy that proves the authors of templates, and its binding, as the manifests have them."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from webhook.api.names import PROGRAM

Json = Mapping[str, Any]

AUTHOR_POLICY: Final = f"{PROGRAM}-authors"
"""The name of both."""


@cache
def shipped() -> Mapping[str, Json]:
    """The specs of both objects by kind, as manifests/base/author-policy.yaml has them."""
    text = pkgutil.get_data(__package__, "author_policy.json")
    assert text is not None  # part of the package
    return msgspec.json.decode(text, type=dict[str, dict[str, Any]])


def unproved(specs: Mapping[str, Json]) -> str:
    """Why API servers do not prove authors; empty if they do. `specs` are in force, by kind; they must equal ours."""
    found = []
    for kind, wanted in shipped().items():
        spec = specs.get(kind)
        if spec is None:
            found.append(f"{kind} {AUTHOR_POLICY} is missing")
        elif spec != wanted:
            changed = sorted(field for field in {*spec, *wanted} if spec.get(field) != wanted.get(field))
            found.append(f"{kind} {AUTHOR_POLICY} is not as shipped: spec.{', spec.'.join(changed)}")
    return "; ".join(found)
