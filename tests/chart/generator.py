"""Writes the chart's templates from the manifests: `python -m tests.chart.generator`, or `make docs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.chart.edits import ChartSourceError, common, entry_of
from tests.chart.sources import COPIES, TEMPLATES
from tests.chart.values_page import PAGE, page
from webhook.policy.schema import schema

if TYPE_CHECKING:
    from tests.chart.sources import Template

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "manifests" / "helm"
VALUES_SCHEMA: Final = CHART / "values.schema.json"
_CONSTRAINTS: Final = {
    *(
        "$ref",
        "type",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "required",
    ),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
}
_NESTED: Final = ("items", "additionalProperties", "propertyNames")
_OTHERS: Final = {
    *(
        "$schema",
        "$defs",
        "properties",
        "title",
        "description",
        "default",
        "examples",
        "format",
        "x-must",
        "x-misplaced",
    ),
}
"""Keywords that refuse nothing by themselves."""


def text_of(template: Template) -> str:
    """The template's text. Raises ChartSourceError if a manifest lacks what is replaced in it."""
    text = common((ROOT / template.source).read_text())
    for condition, source in template.entries:
        entry = common(entry_of((ROOT / source).read_text()))
        text += f"\n{{{{- if {condition} }}}}\n{entry}{{{{- end }}}}\n"
    for edit in template.edits:
        text = edit.applied(text, template.source)
    text = _with_bundles(text)
    if template.condition:
        text = f"{{{{- if {template.condition} }}}}\n{text}{{{{- end }}}}\n"
    return (
        f"{{{{- /* Made of {template.source} by `make docs`: change that, or tests/chart/sources.py. */ -}}}}\n{text}"
    )


def _with_bundles(text: str) -> str:
    """In each entry of a webhook configuration, the CA that values name."""
    bundle = "    {{- with $.Values.certificates.caBundle }}\n    caBundle: {{ . }}\n    {{- end }}\n"
    return text.replace("  clientConfig:\n", f"  clientConfig:\n{bundle}")


def _constraints(node: Any, definitions: str) -> Any:
    """What of a policy's schema refuses anything, with the definitions in another place."""
    if not isinstance(node, dict):
        return node
    unknown = node.keys() - _CONSTRAINTS - _OTHERS - {*_NESTED}
    if unknown:
        raise ChartSourceError(f"templates/_policy.tpl does not know these keywords of a policy's schema: {unknown}")
    kept = {key: value for key, value in node.items() if key in _CONSTRAINTS}
    if "$ref" in kept:
        kept["$ref"] = kept["$ref"].replace("#/$defs", definitions)
    if isinstance(kept.get("type"), str):
        kept["type"] = [kept["type"]]
    nested = {key: _constraints(node[key], definitions) for key in _NESTED if key in node}
    fields = {name: _constraints(field, definitions) for name, field in node.get("properties", {}).items()}
    return {**kept, **nested, **({"properties": fields} if fields else {})}


def _policy_schema(definitions: str) -> dict[str, Any]:
    whole: dict[str, Any] = {**schema()}
    named: Any = whole["$defs"]
    return {
        **_constraints(whole, definitions),
        "definitions": {name: _constraints(node, definitions) for name, node in named.items()},
    }


def _values_schema() -> str:
    """The schema of the values as it is, with that of a policy as it is today: none, a text, or a document."""
    values = json.loads(VALUES_SCHEMA.read_text())
    policy = _policy_schema("#/definitions/policy/definitions")
    required = {"required": policy.pop("required")}
    given = {"if": {"type": "object", "minProperties": 1}, "then": required}
    values["definitions"]["policy"] = {**policy, "type": ["object", "string", "null"], **given}
    return json.dumps(values, indent=2) + "\n"


def files() -> dict[Path, str]:
    """All generated files of the chart, with their texts."""
    templates = {CHART / "templates" / each.target: text_of(each) for each in TEMPLATES}
    copies = {CHART / target: (ROOT / source).read_text() for target, source in COPIES.items()}
    text_schema = json.dumps(_policy_schema("#/definitions"), separators=(",", ":")) + "\n"
    schemas = {VALUES_SCHEMA: _values_schema(), CHART / "files" / "policy.schema.json": text_schema}
    return {**templates, **copies, **schemas, PAGE: page()}


if __name__ == "__main__":
    for _file, _text in files().items():
        _file.parent.mkdir(parents=True, exist_ok=True)
        _file.write_text(_text)
