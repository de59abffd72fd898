"""Writes the chart's templates from the manifests: `python -m tests.chart.generator`, or `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.chart.edits import common, entry_of
from tests.chart.sources import COPIES, TEMPLATES
from tests.chart.values_page import PAGE, page

if TYPE_CHECKING:
    from tests.chart.sources import Template

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "manifests" / "helm"


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


def files() -> dict[Path, str]:
    """All generated files of the chart, with their texts."""
    templates = {CHART / "templates" / each.target: text_of(each) for each in TEMPLATES}
    copies = {CHART / target: (ROOT / source).read_text() for target, source in COPIES.items()}
    return {**templates, **copies, PAGE: page()}


if __name__ == "__main__":
    for _file, _text in files().items():
        _file.parent.mkdir(parents=True, exist_ok=True)
        _file.write_text(_text)
