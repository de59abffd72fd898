"""Writes what is made from the policy's schema: `python -m tests.architecture.policy_reference`.

docs/policy.schema.json is the schema as editors use it, docs/policy-reference.md the same for readers; the schema of
suites, docs/suite.schema.json, is copied beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.policy.schema import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = ROOT / "webhook" / "policy" / "schema.json"
PUBLISHED: Final = ROOT / "docs" / "policy.schema.json"
SUITES: Final = "suite.schema.json"
REFERENCE: Final = ROOT / "docs" / "policy-reference.md"
_REF: Final = "#/$defs/"
_WORDS: Final = {"integer": "number", "array": "list", "boolean": "true or false"}
_INTRODUCTION: Final = """\
# Fields of the policy document

Made from the document's JSON Schema, [policy.schema.json](policy.schema.json), by
`python -m tests.architecture.policy_reference`. An editor that knows YAML checks a document while it is written if the
first line is

```yaml
# yaml-language-server: $schema=policy.schema.json
```

`null` (nothing after the colon) is as good as leaving a list of rules or exceptions out. Elsewhere it is a mistake,
unless it is listed; so is a field that is not. What the fields mean together, and the warnings about documents that are
right and still not what was meant, stand in [admission.md](admission.md)."""


def reference() -> str:
    """The page."""
    whole = schema()
    sections = [_INTRODUCTION, *_section("DeviceTaintPolicy", whole, whole)]
    definitions = whole["$defs"].values()
    for definition in definitions:
        if "properties" in definition:
            sections += _section(definition["title"], definition, whole)
    values = [_value(definition, whole) for definition in definitions if "properties" not in definition]
    sections += ["## Values", "\n".join(f"- {value}" for value in values)]
    return "\n\n".join(sections) + "\n"


def _section(title: str, definition: dict[str, Any], whole: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    yield definition["description"]
    rows = ["| field | value | default | meaning |", "|---|---|---|---|"]
    for name, field in definition["properties"].items():
        shown = f"`{name}`, required" if name in definition.get("required", ()) else f"`{name}`"
        default = f"`{json.dumps(field['default'])}`" if "default" in field else ""
        description = field.get("description") or _definition(field, whole)["description"]
        rows.append(f"| {shown} | {_held(field, whole)} | {default} | {description} |")
    yield "\n".join(rows)


def _definition(field: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = whole["$defs"][field["$ref"].removeprefix(_REF)]
    return found


def _held(field: dict[str, Any], whole: dict[str, Any]) -> str:
    """What a field holds, with a link where that has a place of its own."""
    if "$ref" in field:
        definition = _definition(field, whole)
        title = definition["title"]
        anchor = title.lower().replace(" ", "-") if "properties" in definition else "values"
        shown = title if title.startswith("CEL") else f"{title[0].lower()}{title[1:]}"
        return f"[{shown}](#{anchor})"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if isinstance(value, str))
    kinds: list[str] = field["type"] if isinstance(field["type"], list) else [field["type"]]
    if "array" in kinds:
        return f"list of {_held(field['items'], whole)}, {_bounds(field, 'Items', 'entries')}"
    if "object" in kinds:
        return f"map to {_held(field['additionalProperties'], whole)}, {_bounds(field, 'Properties', 'entries')}"
    words = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    return f"{words}{_range(field)}"


def _range(field: dict[str, Any]) -> str:
    if "maxLength" in field:
        return f", {_bounds(field, 'Length', 'characters')}"
    if "exclusiveMinimum" in field:
        return f" above {field['exclusiveMinimum']}, at most {field['maximum']}"
    if "maximum" in field:
        return f" from {field['minimum']} to {field['maximum']}"
    return ""


def _bounds(field: dict[str, Any], what: str, unit: str) -> str:
    least, most = field.get(f"min{what}", 0), field[f"max{what}"]
    return f"{least} to {most} {unit}" if least else f"at most {most} {unit}"


def _value(definition: dict[str, Any], whole: dict[str, Any]) -> str:
    examples = ", ".join(f"`{json.dumps(example)}`" for example in definition.get("examples", ()))
    shown = f" For example {examples}." if examples else ""
    must = f" It {definition['x-must']}." if "x-must" in definition else ""
    return f"**{definition['title']}**: {definition['description']}{must}{shown} ({_held(definition, whole)})"


def main() -> None:
    """Write the page, and both schemas as they are shipped."""
    PUBLISHED.write_bytes(SHIPPED.read_bytes())
    (PUBLISHED.parent / SUITES).write_bytes((SHIPPED.parent / SUITES).read_bytes())
    REFERENCE.write_text(reference())


if __name__ == "__main__":
    main()
