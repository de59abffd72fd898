"""Our worker removes annotation evict as it ends a rule, and the text on a lockout says what has to change."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.tables import table
from tests.unit.policy.documents import errors_in, make_entry

WORKER: Final = {"requesters": {"serviceAccounts": ["device-taint-webhook/device-taint-webhook-evict"]}}
ENDING: Final = WORKER | {"evict": False, "taints": {"effects": ["None"]}}


@table("denied", {"everything": {}, "no evict": {"evict": False}, "some drivers": {"drivers": ["gpu.example.com"]}})
def test_allowing_our_worker_what_it_writes_is_fine(denied: dict[str, Any]) -> None:
    assert errors_in(taintRules=[make_entry("worker", "allow", ENDING), make_entry("rest", match=denied)]) == []


@pytest.mark.parametrize("denied", [{}, {"evict": False}])
def test_allowing_our_worker_only_with_evict_is_refused(denied: dict[str, Any]) -> None:
    (error,) = errors_in(
        taintRules=[make_entry("worker", "allow", WORKER | {"evict": True}), make_entry("rest", match=denied)]
    )
    assert error.startswith("taintRules[1]: Forbidden: would deny system:serviceaccount:device-taint-webhook:")


def test_text_on_a_lockout_says_what_the_rule_before_it_must_not_name() -> None:
    place = {"drivers": ["gpu.example.com"]}
    (error,) = errors_in(taintRules=[make_entry("worker", "allow", WORKER | place), make_entry("rest", match=place)])
    assert "; let a rule before it allow that account, without drivers and pools, or list effects " in error
