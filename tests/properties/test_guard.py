"""Laws of the guard, on rules that are nearly right: it always has an answer, and less is never refused after more."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tests.builders import DRIVER, make_admission_request, make_context, make_review
from tests.properties.strategies import RIGHT, mutated_bodies, rule_specs
from tests.unit.admission.guarding import UNKNOWN, ask, fleet, node, over, refusals, tainting, text_in
from tests.unit.inventory.values import inventory_of
from webhook.admission.chain import validate
from webhook.admission.review import BadReview, decode_review
from webhook.api.rules import CONFIRM_IMPACT, EVICT
from webhook.inventory.state import Sight
from webhook.policy.model import ImpactLimits, ImpactSettings, NamespaceMatch, RequesterMatch

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

CLUSTER: Final = inventory_of(*fleet(4, lambda number: f"ns-{number % 2}"))
SIGHTS: Final = (Sight(CLUSTER), UNKNOWN, None)
written: SearchStrategy[Any] = st.dictionaries(
    st.sampled_from([CONFIRM_IMPACT, EVICT, "devicetaint.io/expires-at"]),
    st.sampled_from(["true", "false", "v1.1.1.1.1.1.AAAA", "2026-01-01T00:00:00Z"]) | st.text(max_size=8),
    max_size=3,
)
rules: SearchStrategy[Any] = st.builds(
    lambda spec, meta, version: {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": meta,
        "spec": spec,
    },
    rule_specs,
    st.fixed_dictionaries(
        {},
        optional={"name": st.just("a") | st.text(max_size=3), "generateName": st.just("a"), "annotations": written},
    ),
    st.sampled_from(["v1", "v1beta2", "v1alpha3"]),
)
selectors: SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "driver": st.sampled_from([DRIVER, "other.example.com"]),
        "pool": st.sampled_from(["node-0", "node-1"]),
        "device": st.sampled_from(["gpu-0", "gpu-1"]),
    },
)
effects = st.sampled_from(["None", "NoSchedule", "NoExecute"])
strict = st.builds(
    ImpactSettings,
    limits=st.builds(ImpactLimits, pods=st.integers(0, 5) | st.none(), devices=st.integers(0, 9) | st.none()).map(
        lambda entry: (entry,)
    ),
    protected_namespaces=st.sampled_from([NamespaceMatch(names=("ns-1",)), NamespaceMatch(names=("other",))]),
)


@given(rules, st.none() | rules, st.sampled_from(SIGHTS), st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]))
def test_guard_always_has_an_answer(new: Any, old: Any, sight: Sight | None, operation: str) -> None:
    request = make_admission_request(new, old, operation=operation)
    decision = validate(request, make_context(sight=sight))
    assert decision.code in {200, 400, 403, 422}
    assert all(len(warning) <= 256 for warning in decision.warnings)


# No shrinking: a smaller seed is no simpler body.
@settings(phases=[Phase.generate])
@given(RIGHT["rule"], RIGHT["rule"], st.integers(0, 2**32))
def test_spoilt_reviews_have_an_answer_too(new: Any, old: Any, seed: int) -> None:
    for body in mutated_bodies(make_review(new, old), Random(seed))[:60]:
        with suppress(BadReview):
            request = decode_review(body)
            for sight in SIGHTS:
                assert validate(request, make_context(sight=sight)).code in {200, 400, 403, 422}


@given(st.none() | selectors, effects, st.booleans(), strict)
def test_what_is_refused_can_be_confirmed(selector: Any, effect: str, evict: Any, limits: ImpactSettings) -> None:
    refused = ask(tainting(selector, effect, evict=evict), cluster=CLUSTER, impact=limits)
    assume(not refused.allowed)
    confirmed = tainting(selector, effect, evict=evict, text=text_in(refused))
    assert refusals(ask(confirmed, cluster=CLUSTER, impact=limits)) == []


@given(selectors, selectors, effects, strict)
def test_wider_selector_is_not_less_refused(selector: Any, more: Any, effect: str, limits: ImpactSettings) -> None:
    wide, narrow = tainting(selector, effect), tainting({**more, **selector}, effect)
    if ask(wide, cluster=CLUSTER, impact=limits).allowed:
        assert ask(narrow, cluster=CLUSTER, impact=limits).allowed


@given(selectors, st.text(min_size=1, max_size=3), st.integers() | st.booleans(), effects, strict)
def test_unknown_field_makes_any_selector_as_refused_as_an_empty_one(
    selector: Any, name: str, value: Any, effect: str, limits: ImpactSettings
) -> None:
    """R8."""
    unjudged = ask(tainting({**selector, name: value}, effect), cluster=CLUSTER, impact=limits)
    everything = ask(tainting({}, effect), cluster=CLUSTER, impact=limits)
    assert unjudged.allowed == everything.allowed
    figures, of_everything = (each.annotations["impact"].partition(" over=")[0] for each in (unjudged, everything))
    assert figures == of_everything


forms = st.tuples(selectors, effects, st.booleans())


@given(forms, forms, strict)
def test_update_is_refused_only_for_what_a_creation_would_be(after: Any, before: Any, limits: ImpactSettings) -> None:
    new, old = (tainting(selector, effect, evict=evict) for selector, effect, evict in (after, before))
    updated = ask(new, old, cluster=CLUSTER, impact=limits)
    created = ask(new, cluster=CLUSTER, impact=limits)
    assert set(over(updated)) <= set(over(created))
    if after == before:
        assert over(updated) == []


@given(
    selectors,
    effects,
    st.booleans(),
    st.sampled_from([CLUSTER, Sight(CLUSTER), UNKNOWN]),
    st.integers(0, 5),
    st.sampled_from(["jane", "john"]),
    st.sampled_from(["made up", "for less", "its own"]),
)
def test_text_on_a_stored_rule_passes_only_where_a_new_rule_with_it_would(  # noqa: PLR0917 -- hypothesis fills them
    selector: Any,
    effect: str,
    evict: bool,  # noqa: FBT001 -- likewise
    cluster: Any,
    pods: int,
    user: str,
    which: str,
) -> None:
    """R4."""
    confirmers = RequesterMatch(users=("jane",))
    limits = ImpactSettings(limits=(ImpactLimits(pods=pods),), confirmers=confirmers)
    text = "v1 devices=9 claims=9 pods=9 namespaces=9 of=aaaaaaaaaaaaaaaa"
    if which != "made up":
        least = ImpactSettings(limits=(ImpactLimits(pods=0, devices=0),))
        seen = inventory_of(*fleet(1)) if which == "for less" else CLUSTER
        refused = ask(tainting(selector, effect, evict=evict), cluster=seen, impact=least)
        assume(not refused.allowed)
        text = text_in(refused)
    new, old = (tainting(selector, effect, evict=evict, text=each) for each in (text, None))
    options: Any = {"cluster": cluster, "impact": limits, "user": user}
    updated, created = ask(new, old, **options), ask(new, **options)
    if which == "made up" or user == "john":
        assert not updated.allowed
        assert not created.allowed
    else:
        assert updated.allowed == created.allowed
    assert ask(old, new, **options).allowed


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 4))
def test_order_of_small_rules_does_not_matter(numbers: list[int], limit: int) -> None:
    """However they come, those that pass hit no more than the limit together, and no room is left unused."""
    limits = ImpactSettings(limits=(ImpactLimits(pods=limit),), protected_namespaces=NamespaceMatch(names=("other",)))
    assumed: list[Any] = []
    victims: list[Any] = []
    hit = set()
    for place, number in enumerate(numbers):
        rule = tainting(node(number), name=f"rule-{place}")
        decision = ask(rule, cluster=CLUSTER, impact=limits, assumed=tuple(assumed), victims=tuple(victims))
        if decision.assumed is not None:
            assumed.append(decision.assumed.rules[0])
            victims.append(decision.assumed.impact)
            hit.add(number)
    assert len(hit) == min(limit, len(set(numbers)))
