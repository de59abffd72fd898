"""What a taint of a patch may have beside its key, the annotations of its rules may have. `seeds.md` N-9 to N-11."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from webhook.api.field import Path
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceTaintRule, own_rate
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.patches.expansion import annotations_of
from webhook.validation.documented import documented_rule_errors
from webhook.validation.taints import DATA_MAX_BYTES, extras_errors


@table(
    "data, rate",
    {
        "data that is no ASCII": ({"note": "ä" * ((DATA_MAX_BYTES - 11) // 2)}, None),
        "data with a large number": ({"number": 1e22, "text": "x" * (DATA_MAX_BYTES - 25)}, None),
        "a rate of ten digits": (None, 10**9),
        "the highest rate": (None, 2**63 - 1),
    },
)
def test_what_a_patch_may_say_is_no_error_in_its_rules(data: Any, rate: int | None) -> None:
    extras = TaintExtras(data, None, rate)
    assert not list(extras_errors(Path.root(), extras))
    taint = DeviceTaint("a.example.com/b", "", "NoExecute", None, extras)
    rule = DeviceTaintRule(ObjectMeta("r", annotations=annotations_of(taint)), None, DeviceTaint("a.example.com/b"))
    assert not list(documented_rule_errors(rule, None))
    assert own_rate(rule) == (None if rate is None else float(rate))
