"""Manifests as text for `kubectl apply`: a stream of YAML documents, or a List in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_yaml_stream(objects: Sequence[dict[str, Any]]) -> str:
    """One document each; texts of several lines stand as they are, for they are there to be read."""
    import yaml  # noqa: PLC0415 -- only here; most commands read YAML and write none

    class Dumper(yaml.SafeDumper):
        """With literal blocks."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    stream: str = yaml.dump_all(
        objects, Dumper=Dumper, explicit_start=True, sort_keys=False, allow_unicode=True, width=120
    )
    return stream


def as_json_list(objects: Sequence[dict[str, Any]]) -> str:
    """A v1 List, which kubectl takes apart."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2, ensure_ascii=False) + "\n"
