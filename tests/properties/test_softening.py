"""Laws of softening: /mutate and /validate agree, nothing changes twice, and no mark helps anyone past the guard."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW
from tests.properties.test_guard import selectors
from tests.unit.admission.guarding import UNKNOWN, fleet, tainting
from tests.unit.admission.softened import ACCOUNT, OPERATOR, send
from tests.unit.inventory.values import inventory_of
from webhook.api.rules import EVICT, EVICTIONS_PER_SECOND, SOFTENED_FROM
from webhook.inventory.state import Sight
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, NamespaceMatch, PolicyMode, Softening

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

CLUSTER: Final = Sight(inventory_of(*fleet(4, lambda number: f"ns-{number % 2}")))
numbers = st.integers(0, 5) | st.none()
written: SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        EVICT: st.sampled_from(["true", "false"]),
        SOFTENED_FROM: st.sampled_from(["NoExecute", "NoSchedule"]),
        EVICTIONS_PER_SECOND: st.sampled_from(["1", "1000"]),
    },
)
rules: SearchStrategy[Any] = st.builds(
    lambda selector, effect, seconds, marks: tainting(
        selector, effect, added=NOW + timedelta(seconds=seconds), annotations=marks
    ),
    selectors,
    st.sampled_from(["None", "NoSchedule", "NoExecute", "NoExecute"]),
    st.sampled_from([0, -30, -3600, 30, 3600]),
    written,
)
policies: SearchStrategy[ImpactSettings] = st.builds(
    lambda soften, own, devices, others, settings: ImpactSettings(
        limits=(ImpactLimits(ACCOUNT, pods=own, devices=devices, soften=soften), ImpactLimits(pods=others)), **settings
    ),
    st.sampled_from([Softening.OVER, Softening.ALWAYS]),
    numbers,
    st.none() | st.integers(0, 9),
    numbers,
    st.fixed_dictionaries(
        {
            "protected_namespaces": st.sampled_from([NamespaceMatch(names=("ns-1",)), NamespaceMatch(names=("x",))]),
            "two_step": st.booleans(),
            "unknown_impact": st.sampled_from([Action.DENY, Action.WARN]),
        }
    ),
)
sights = st.sampled_from([CLUSTER, CLUSTER, UNKNOWN])
modes = st.sampled_from([PolicyMode.ENFORCE, PolicyMode.ENFORCE, PolicyMode.WARN, PolicyMode.OFF])


@given(rules, st.none() | rules, policies, sights, modes)
def test_what_mutate_softens_validate_allows(
    rule: Any, old: Any, impact: ImpactSettings, sight: Sight, mode: PolicyMode
) -> None:
    sent = send(rule, old, cluster=sight, impact=impact, mode=mode)
    if sent.remark:
        assert sent.softened
        assert sent.judged.allowed, sent.judged.errors


@given(rules, st.none() | rules, policies, sights, modes)
def test_mutate_changes_nothing_twice(
    rule: Any, old: Any, impact: ImpactSettings, sight: Sight, mode: PolicyMode
) -> None:
    first = send(rule, old, cluster=sight, impact=impact, mode=mode)
    assert send(first.stored, old, cluster=sight, impact=impact, mode=mode).stored == first.stored


@given(rules, st.none() | rules, policies, sights)
def test_rule_that_was_softened_stays_as_it_is_however_often_it_is_sent(
    rule: Any, old: Any, impact: ImpactSettings, sight: Sight
) -> None:
    first = send(rule, old, cluster=sight, impact=impact)
    later = NOW + timedelta(hours=3)  # a time that is not the present one is the author's
    for known in (sight, UNKNOWN) if first.remark else ():
        again = send(rule, first.stored, cluster=known, impact=impact, now=later)
        assert again.softened
        assert again.judged.allowed
        last = send(rule, again.stored, cluster=known, impact=impact, now=later + timedelta(minutes=5))
        assert last.stored["spec"] == again.stored["spec"]


@given(rules, st.none() | rules, policies, sights)
def test_mark_lets_nothing_pass_that_would_be_refused_without_it(
    rule: Any, old: Any, impact: ImpactSettings, sight: Sight
) -> None:
    """For whom nothing is softened, a rule with the mark is allowed only if it is without."""
    marked, bare = (_with(rule, mark) for mark in ("NoExecute", None))
    if old is not None:
        old = _with(old, None)  # else taking the mark off is a change of its own
    for user, own in (("dana", impact), (OPERATOR, _never(impact))):
        allowed = send(marked, old, user=user, cluster=sight, impact=own).judged.allowed
        assert not allowed or send(bare, old, user=user, cluster=sight, impact=own).judged.allowed


def _with(rule: Any, mark: str | None) -> Any:
    kept = {name: text for name, text in rule["metadata"]["annotations"].items() if name != SOFTENED_FROM}
    given = kept if mark is None else {**kept, SOFTENED_FROM: mark}
    return {**rule, "metadata": {**rule["metadata"], "annotations": given}}


def _never(impact: ImpactSettings) -> ImpactSettings:
    limits = tuple(ImpactLimits(each.requesters, pods=each.pods, devices=each.devices) for each in impact.limits)
    return ImpactSettings(
        limits=limits,
        protected_namespaces=impact.protected_namespaces,
        two_step=impact.two_step,
        unknown_impact=impact.unknown_impact,
    )
