"""A rule that names no driver or pool: a deny of some takes it in, and no allow of the same lets our worker end it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.policy.documents import errors_in, make_entry

WORKER: Final = {"requesters": {"serviceAccounts": ["device-taint-webhook/device-taint-webhook-evict"]}}
PLACES: Final = [{"drivers": ["gpu.example.com"]}, {"pools": ["node-*"]}]


@pytest.mark.parametrize("place", PLACES, ids=["drivers", "pools"])
def test_allowing_our_worker_only_where_others_are_denied_is_refused(place: dict[str, Any]) -> None:
    (error,) = errors_in(taintRules=[make_entry("worker", "allow", WORKER | place), make_entry("rest", match=place)])
    assert error.startswith("taintRules[1]: Forbidden: would deny system:serviceaccount:device-taint-webhook:")


@pytest.mark.parametrize("place", PLACES, ids=["drivers", "pools"])
@pytest.mark.parametrize("everywhere", [{}, {"drivers": ["*"], "pools": ["*"]}], ids=["no list", "any"])
def test_allowing_our_worker_everywhere_is_fine(place: dict[str, Any], everywhere: dict[str, Any]) -> None:
    rules = [make_entry("worker", "allow", WORKER | everywhere), make_entry("rest", match=place)]
    assert errors_in(taintRules=rules) == []
