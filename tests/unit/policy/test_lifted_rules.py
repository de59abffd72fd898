"""Advice where an exception lifts an earlier rule: what comes after it is reached."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from tests.unit.policy.documents import make_entry, make_exception, warnings_in

KEYS = {"tolerations": {"keys": ["a.example.com/*"]}}
LATER = make_entry("later", match={"tolerations": {"keys": ["a.example.com/*"], "seconds": {"above": 3600}}})


@table(
    "exceptions, told",
    {
        "none": ([], True),
        "to the earlier rule": ([make_exception("lab", ["no"])], False),
        "to the later one": ([make_exception("lab", ["later"])], True),
    },
)
def test_a_rule_is_reached_where_an_exception_lifts_the_one_before_it(exceptions: Any, *, told: bool) -> None:
    found = warnings_in(rules=[make_entry("no", match=KEYS), LATER], exceptions=exceptions)
    assert [each.partition(" ")[0] for each in found] == (["DT101"] if told else [])


def test_a_taint_rule_is_reached_where_an_exception_lifts_the_one_before_it() -> None:
    match = {"taints": {"effects": ["NoExecute"]}}
    rules = [make_entry("no", match=match), make_entry("later", match=match)]
    assert warnings_in(taintRules=rules) != []
    assert warnings_in(taintRules=rules, exceptions=[make_exception("lab", ["no"])]) == []
