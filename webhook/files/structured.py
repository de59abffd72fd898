"""Values as JSON and YAML, for programs: reports, schemas, and manifests for `kubectl apply`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_WIDTH: Final = 120


def encodable(value: Any) -> Any:
    """The value without half surrogate pairs, which file names may contain and UTF-8 cannot encode."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [encodable(entry) for entry in value]
    return value


def json_text(value: Any, indent: int | None = 2) -> str:
    """A value as JSON with a final newline, keys in their order; on one line without `indent`."""
    return _readable(lambda raw: json.dumps(encodable(value), indent=indent, ensure_ascii=not raw)) + "\n"


def _readable(dump: Callable[[bool], str]) -> str:
    """Characters beyond ASCII as they are (true), unless one of them steers a terminal. JSON takes DEL for none."""
    text = dump(True)  # noqa: FBT003 -- a callback's argument
    return text if text.replace("\n", "").isprintable() else dump(False).replace("\x7f", "\\u007f")  # noqa: FBT003


def yaml_text(value: Any) -> str:
    """The same as YAML."""
    import yaml  # noqa: PLC0415 -- only here; the reader has it already

    return _readable(lambda raw: yaml.safe_dump(encodable(value), sort_keys=False, allow_unicode=raw, width=_WIDTH))


STRUCTURED: Final[Mapping[str, Callable[[Any], str]]] = {"json": json_text, "yaml": yaml_text}
"""By the value of `-o`."""


def json_list(objects: Sequence[dict[str, Any]]) -> str:
    """Manifests as a v1 List in JSON, which kubectl takes apart."""
    return json_text({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def yaml_stream(objects: Sequence[dict[str, Any]]) -> str:
    """Manifests as YAML documents; texts of several lines become literal blocks, which are easier to read."""
    import yaml  # noqa: PLC0415 -- only here; most commands read YAML and write none

    class Dumper(yaml.SafeDumper):
        """With literal blocks."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    options: Any = {"Dumper": Dumper, "explicit_start": True, "sort_keys": False, "width": _WIDTH}
    return _readable(lambda raw: yaml.dump_all(encodable(list(objects)), allow_unicode=raw, **options))
