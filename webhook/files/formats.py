"""The formats of a report, by the names that `-o` has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from webhook.files.render import as_junit, as_text, as_values
from webhook.files.report import Report
from webhook.files.structured import STRUCTURED, json_text

FORMATS: Final = ("text", "json", "yaml", "junit", "github", "gitlab", "sarif")


class Renderer:
    """Prints reports of a verb. `texts` gives the title and the text of each warning code, if they are needed."""

    def __init__(self, verb: str, texts: Callable[[], Mapping[str, tuple[str, str]]]) -> None:
        self._verb = verb
        self._texts = texts

    def render(self, output: str, report: Report, *, color: bool = False) -> str:
        """The report in one of FORMATS; `color` is for text only."""
        # Those for CI are imported when asked for: a check of one file should not wait for them.
        match output:
            case "json" | "yaml":
                return STRUCTURED[output](as_values(report))
            case "junit":
                return as_junit(report, verb=self._verb)
            case "github" | "gitlab" | "sarif":
                from webhook.files import ci_formats  # noqa: PLC0415

                if output == "github":
                    return ci_formats.as_github(report)
                if output == "gitlab":
                    return json_text(ci_formats.code_quality_values(report))
                return json_text(ci_formats.sarif_values(report, self._verb, self._texts()))
            case _:
                return as_text(report, color=color)
