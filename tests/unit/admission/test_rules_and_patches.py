"""Where the guard answers a rule in one way, and a patch that says the same in another."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.builders import KEY, NOW, make_taint
from tests.unit.admission.guarding import UNKNOWN, allowing, ask, node, tainting, text_in, told
from tests.unit.admission.patch_guarding import SlowMemo, ask_patch, cel, evicting, known, patching
from tests.unit.admission.softened import softening
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, NOT_BEFORE, SOFTENED_FROM
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, NamespaceMatch, PolicyMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.admission.decision import Decision

PAST: Final = NOW - timedelta(days=2)
BACKDATED: Final = evicting(time_added=format_time(PAST))
LAST_WEEK: Final = {EXPIRES_AT: format_time(PAST)}
SOFT: Final = softening()
OPERATOR: Final = "system:serviceaccount:health:operator"
PROTECTED: Final = softening(pods=9, protected_namespaces=NamespaceMatch(names=("ml",)))
WARNS: Final = ImpactSettings(unknown_impact=Action.WARN)
LATER: Final = {NOT_BEFORE: format_time(NOW + timedelta(hours=1))}
MARK: Final = {SOFTENED_FROM: "NoExecute"}
QUIET: Final = make_taint(time_added=format_time(NOW))
TWO_STEPS: Final = ImpactSettings(limits=(ImpactLimits(),), two_step=True)


def annotated(patch: Any, **annotations: str) -> Any:
    meta = patch["metadata"]
    return {**patch, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


class Case(NamedTuple):
    """A rule and a patch that say the same, the options of both, and what is said of the one and not of the other."""

    rule: Any
    patch: Any
    of_rule: str = ""
    of_patch: str = ""
    options: Mapping[str, Any] = {}
    was: Any = None
    patch_was: Any = None


def _confirmed_for_more() -> Case:
    """A stored text for all nodes on what is now for one."""
    limits = allowing(pods=3)
    rule = tainting(text=text_in(ask(tainting(), impact=limits)))
    patch = patching(text=text_in(ask_patch(patching(), impact=limits)))
    less = {**rule, "spec": {**rule["spec"], "deviceSelector": node(0)}}
    less_patched = {**patch, "spec": {"devices": {**patch["spec"]["devices"], "filter": node(0)}}}
    return Case(less, less_patched, "was printed for the object as it was", "", {"impact": limits}, rule, patch)


CASES: Final = {
    "expired": Case(tainting(annotations=LAST_WEEK), annotated(patching(), **LAST_WEEK), "the rule has expired"),
    "in a file": Case(tainting({}), patching({}), "narrow the selector", "", {"sight": None, "offline": True}),
    "for less than its text": _confirmed_for_more(),
    "updated": Case(
        *(tainting(), patching(cel("true")), "the limit is 3 pods", "evicts 3 pods", {"impact": allowing(pods=3)}),
        *(tainting(node(0)), patching(cel("true", pool="node-0"))),
    ),
    "with a later start": Case(tainting(annotations=LATER), annotated(patching(), **LATER), "delays our worker only"),
    "without a selector": Case(tainting(None), patching(None), "over=no-selector", "over=empty-selector"),
    "softened, in a protected namespace": Case(
        tainting(effect="NoSchedule", evict=True, annotations=MARK),
        patching("default", QUIET, softened=KEY),
        "no pod is evicted before",
        "",
        {"impact": PROTECTED, "user": OPERATOR},
    ),
    "not softened by /mutate": Case(
        *(tainting(), patching(), "softens such rules", "or there is one of that key with NoSchedule"),
        {"impact": SOFT, "user": OPERATOR},
    ),
    "to be softened": Case(
        *(tainting(), patching(), "NoSchedule with devicetaint.io/evict", "with devicetaint.io/softened-keys"),
        {"impact": SOFT, "user": OPERATOR, "mode": PolicyMode.WARN},
    ),
    "first step": Case(
        *(tainting(), patching(), "create the rule with", "create the patch with", {"impact": TWO_STEPS})
    ),
    "with a slow filter": Case(
        tainting(effect="NoSchedule"),
        patching(cel("true"), QUIET),
        "allowed",
        "denied",
        {"impact": allowing(devices=9), "patches": known(memo=SlowMemo())},
    ),
    "of unknown impact": Case(
        tainting(), patching(), "counted 1 of 1", "counted -", {"cluster": UNKNOWN, "impact": WARNS}
    ),
}


def said(decision: Decision) -> str:
    """The verdict, the reasons in the audit log, how much later reviews count, and all texts."""
    assumed = "-" if decision.assumed is None else f"{len(decision.assumed.rules)} of {len(decision.assumed.names)}"
    verdict = "allowed" if decision.allowed else "denied"
    texts = [text for _, text in told(decision)]
    return "\n".join([verdict, decision.annotations.get("impact", ""), f"counted {assumed}", *texts])


@pytest.mark.parametrize("name", CASES)
def test_rule_and_patch_differ_where_they_should(name: str) -> None:
    case = CASES[name]
    rule = said(ask(case.rule, case.was, **case.options))
    patch = said(ask_patch(case.patch, case.patch_was, **case.options))
    for text, own, other in ((case.of_rule, rule, patch), (case.of_patch, patch, rule)):
        assert not text or (text in own and text not in other), own


def test_equal_reasons_of_several_taints_are_told_once() -> None:
    old = BACKDATED, {**BACKDATED, "key": "a.example.com/x"}
    decision = ask_patch(patching("default", *old))
    assert decision.annotations["impact"].endswith(" over=backdated")
    assert said(decision).count("is past, so tolerationSeconds may be over") == 1
