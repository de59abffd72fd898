"""A rule that `check` refuses is refused here, too: a server would refuse it, whatever confirms its impact."""

from __future__ import annotations

from typing import Any

from tests.builders import make_meta, make_taint
from tests.tables import table
from tests.unit.commands.preview_runner import PreviewRunner, rule

EVICT = "devicetaint.io/evict"


@table(
    "annotations, taint, told",
    {
        "an annotation": ({EVICT: "yes"}, {}, f'metadata.annotations[{EVICT}]: Invalid value: "yes": must be "true"'),
        "a field": ({}, {"valeu": "x"}, 'spec.taint.valeu: Forbidden: unknown field, did you mean "value"?'),
    },
)
def test_rule_that_check_refuses_is_an_error(
    annotations: dict[str, str], taint: dict[str, str], told: str, run_preview: PreviewRunner
) -> None:
    asked: Any = {**rule(), "metadata": make_meta("unhealthy-gpu", annotations=annotations)}
    asked["spec"]["taint"] = {**make_taint(effect="NoExecute", time_added=None), **taint}
    code, output = run_preview(asked)
    assert (code, f"error: {told}" in output) == (1, True), output
