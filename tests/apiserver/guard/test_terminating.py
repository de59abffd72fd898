"""A rule that is being deleted and kept by a finalizer still acts: it gets no new power without the guard."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.apiserver.guard.crowd import make_rule
from tests.apiserver.objects import RULES
from tests.apiserver.policy.stage import Stage

EVICT: Final = {"devicetaint.io/evict": "true"}
FORGED: Final = {"devicetaint.io/confirm-impact": "v1.9999999999.999999999.999999999.999999999.999999999." + "A" * 43}
KEPT: Final = {"finalizers": ["attack.example.com/keep"]}


@pytest.mark.parametrize("effect", ["None", pytest.param("NoSchedule", marks=pytest.mark.whole)])
def test_r1_a_rule_that_is_being_deleted_cannot_ask_for_evictions_past_the_guard(guarded: Stage, effect: str) -> None:
    client, name = guarded.client, f"kept-{effect.lower()}"
    rule = f"{RULES}/{name}"
    assert client.create(RULES, make_rule(None, name, effect=effect, **KEPT)).ok
    assert client.delete(rule).ok
    tries: list[Any] = [EVICT, {**EVICT, **FORGED}]
    for given in tries:
        reply = client.patch(rule, {"metadata": {"annotations": given}})
        assert (reply.code, "500 pods" in reply.message) == (403, True), reply
    applied = {**make_rule(None, name, effect=effect), "metadata": {"name": name, "annotations": EVICT}}
    assert client.apply(rule, applied, field_manager="attack").code == 403
    forged = client.patch(rule, {"metadata": {"annotations": FORGED}})
    assert (forged.code, "confirm-impact" in forged.message) == (403, True), forged
    assert not client.get(rule).object["metadata"].get("annotations")
    assert client.patch(rule, {"metadata": {"finalizers": None}}).ok
    assert client.get(rule).code == 404
