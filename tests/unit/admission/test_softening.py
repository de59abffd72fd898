"""Which NoExecute rules become NoSchedule, and that their form lets no requester past the guard."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import NOW, decoded
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, ask, fleet, node, refusals, tainting, text_in
from tests.unit.admission.softened import ACCOUNT, MARKS, OPERATOR, send, softening, stored_softened
from tests.unit.inventory.values import claim, group, inventory_of, on, pool_slice
from webhook.api.meta import format_time
from webhook.api.rules import CONFIRM_IMPACT, EVICT, EVICTIONS_PER_SECOND, SOFTENED_FROM
from webhook.policy.model import (
    Action,
    EvictionProfile,
    ImpactLimits,
    ImpactSettings,
    NamespaceMatch,
    PolicyMode,
    Softening,
    TaintMatch,
)

ALWAYS = softening(Softening.ALWAYS)
LONG_AGO = NOW - timedelta(hours=2)
LATER = NOW + timedelta(minutes=20)


# --- what is softened -----------------------------------------------------------------------------


def test_rule_over_the_limit_is_stored_as_no_schedule() -> None:
    sent = send(tainting())
    assert sent.softened
    assert sent.judged.allowed
    assert sent.time == format_time(NOW)
    assert sent.mutated.softened
    assert sent.mutated.warnings == (
        (
            "spec.taint.effect: NoExecute became NoSchedule with annotation devicetaint.io/evict; "
            "the limit is 3 pods [DT121]"
        ),
    )
    assert sent.mutated.annotations == {
        "decision": "softened",
        "policy-hash": "builtin",
        "impact": (
            "devices=8 pools=4 allocated=4 claims=4 pods=4 now=4 later=0 tolerating=0 unseen=0 kept=0"
            " namespaces=1 podGroups=0 over=limit:pods"
        ),
    }
    assert sent.judged.annotations["impact"].endswith("over=limit:pods softened")
    assert sent.judged.warnings[1] == (
        "spec.deviceSelector: the limit is 3 pods: no pod is evicted before devicetaint.io/confirm-impact confirms it"
        " (rule impact)"
    )
    assert sent.judged.assumed is not None
    assert sent.judged.assumed.rules[0].softened


def test_rule_within_the_limit_stays_as_it_is_and_counts_for_the_next() -> None:
    sent = send(tainting(node(0)))
    assert (sent.softened, sent.mutated.patch, sent.mutated.softened) == (False, (), False)
    assert sent.mutated.assumed is not None
    assert sent.mutated.assumed.impact.pods == {"u-0"}
    assert sent.mutated.assumed.rules[0].taint.effect == "NoExecute"


def test_policy_that_softens_always_asks_for_no_excess() -> None:
    sent = send(tainting(node(0)), impact=ALWAYS)
    assert (sent.softened, sent.judged.allowed, sent.mutated.assumed) == (True, True, None)
    assert sent.remark.endswith("; the policy softens every such rule")
    assert [text for text in sent.judged.warnings if "confirm" in text] == []


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_other_effects_stay(effect: str) -> None:
    sent = send(tainting(effect=effect), impact=ALWAYS)
    assert (sent.mutated.patch, sent.judged.allowed) == ((), True)


@table(
    "options",
    {
        "another account": {"user": "dana"},
        "another taint": {"impact": softening(taints=TaintMatch(keys=("other/*",)))},
        "an entry that denies": {"impact": softening(Softening.NEVER)},
        "a rule that needs two steps": {"impact": softening(two_step=True)},
    },
)
def test_rule_of_another_entry_is_refused_as_before(options: Any) -> None:
    sent = send(tainting(), **options)
    assert (sent.softened, sent.mutated.patch, sent.mutated.findings) == (False, (), ())
    assert sent.judged.code == 403


def test_second_step_is_softened() -> None:
    settings = softening(two_step=True)
    assert send(tainting(), tainting(effect="NoSchedule"), impact=settings).softened
    assert send(tainting(), tainting(effect="None"), impact=settings).judged.allowed


@table(
    "rule, settings, reason",
    {
        "empty selector": (tainting({}), softening(), "an empty selector"),
        "no selector": (tainting(None), softening(), "a rule without selector"),
        "unknown field": (tainting({**node(0), "orDriver": "b"}), softening(), "not known here"),
        "devices": (tainting(), softening(devices=7), "the limit is 7 devices and 3 pods"),
        "devices alone": (tainting(), softening(devices=7, pods=None), "the limit is 7 devices"),
        "claims": (tainting(), softening(claims=3), "the limit is 3 claims and 3 pods"),
    },
)
@pytest.mark.parametrize("when", [Softening.OVER, Softening.ALWAYS])
def test_what_softening_would_not_help_is_refused(
    rule: Any, settings: ImpactSettings, reason: str, when: Softening
) -> None:
    (own, others) = settings.limits
    limits = ImpactLimits(own.requesters, None, own.pods, own.claims, own.devices, own.namespaces, soften=when)
    sent = send(rule, impact=ImpactSettings(limits=(limits, others)))
    assert sent.mutated.patch == ()
    assert reason in " ".join(refusals(sent.judged))
    forged = {**rule, "metadata": {**rule["metadata"], "annotations": MARKS}}
    forged["spec"] = {**rule["spec"], "taint": {**rule["spec"]["taint"], "effect": "NoSchedule"}}
    assert reason in " ".join(refusals(send(forged, impact=ImpactSettings(limits=(limits, others))).judged))


@table(
    "cluster, settings, waits",
    {
        "namespaces": (fleet(), softening(pods=None, namespaces=0), True),
        "pods and namespaces": (fleet(), softening(pods=3, namespaces=0), True),
        "protected": (fleet(), softening(pods=9, protected_namespaces=NamespaceMatch(("ml",))), True),
        "PodGroup of unknown size": (
            [pool_slice("gpu-0", pool="node-0"), claim("c", on(pool="node-0"), users=[group("pg")])],
            softening(),
            False,
        ),
        "half published pool": ([pool_slice("gpu-0", count=2)], softening(), False),
    },
)
def test_other_reasons_soften_too(cluster: Any, settings: ImpactSettings, *, waits: bool) -> None:
    sent = send(tainting(), cluster=inventory_of(*cluster), impact=settings)
    assert (sent.softened, sent.judged.allowed) == (True, True)
    assert any("no pod is evicted before" in text for text in sent.judged.warnings) is waits


def test_pods_of_a_group_are_not_softened_where_their_places_are_limited() -> None:
    """The worker waits for no place, so that would be a way around the limit."""
    cluster = inventory_of(pool_slice("gpu-0", pool="node-0"), claim("c", on(pool="node-0"), users=[group("pg")]))
    sent = send(tainting(), cluster=cluster, impact=softening(pending_pods=0))
    assert (sent.softened, sent.judged.allowed) == (False, False)


def test_backdated_rule_gets_the_time_of_its_softening() -> None:
    sent = send(tainting(node(0), added=LONG_AGO))
    assert (sent.softened, sent.judged.allowed, sent.time) == (True, True, format_time(NOW))
    moved = send(tainting(node(1), added=LONG_AGO), stored_softened(node(0), added=LONG_AGO))
    assert (moved.softened, moved.judged.allowed, moved.time) == (True, True, format_time(NOW))


@pytest.mark.parametrize("seconds", [-60, -30, 30, 3600])
def test_time_of_the_present_or_the_future_stays(seconds: int) -> None:
    added = NOW + timedelta(seconds=seconds)
    assert send(tainting(added=added)).time == format_time(added)


def test_backdated_form_is_refused() -> None:
    rule = stored_softened(node(1), added=LONG_AGO)
    sent = send(rule, stored_softened(node(0), added=LONG_AGO))
    assert "is past" in refusals(sent.judged)[0]


# --- unknown impact -------------------------------------------------------------------------------


def test_unknown_impact_softens_where_it_would_be_refused() -> None:
    sent = send(tainting(), cluster=UNKNOWN)
    assert (sent.softened, sent.judged.allowed) == (True, True)
    assert sent.remark.endswith("; its impact is not known: claims were not read yet")
    assert "impact" not in sent.mutated.annotations
    assert sent.judged.annotations["impact"] == "unknown: claims were not read yet"


def test_unknown_impact_that_only_warns_softens_nothing_unless_always() -> None:
    milder = softening(unknown_impact=Action.WARN)
    assert send(tainting(), cluster=UNKNOWN, impact=milder).mutated.patch == ()
    always = softening(Softening.ALWAYS, unknown_impact=Action.WARN)
    assert send(tainting(), cluster=UNKNOWN, impact=always).softened


@pytest.mark.parametrize("limit", ["devices", "claims"])
def test_unknown_impact_with_a_limit_that_is_not_softened_is_refused(limit: str) -> None:
    sent = send(tainting(), cluster=UNKNOWN, impact=softening(Softening.OVER, **{limit: 1000}))
    assert (sent.softened, sent.judged.code) == (False, 403)
    assert send(tainting({}), cluster=UNKNOWN).judged.code == 403


def test_where_no_cluster_is_known_nothing_is_softened() -> None:
    assert send(tainting(), sight=None, impact=ALWAYS).mutated.patch == ()


# --- many at once ---------------------------------------------------------------------------------


def test_rule_that_exceeds_the_limit_with_others_is_softened() -> None:
    left = [send(tainting(node(number), name=f"r-{number}")).mutated.assumed for number in range(3)]
    assumed = tuple(each.rules[0] for each in left if each is not None)
    sent = send(tainting(node(3)), assumed=assumed)
    assert (sent.softened, sent.judged.allowed) == (True, True)
    assert "with all other taints of the last 10 min it hits 4 pods" in sent.remark
    assert [text for text in sent.judged.warnings if "no pod is evicted before" in text] == []


def test_rule_that_exceeds_two_softened_limits_with_others_is_softened() -> None:
    cluster = inventory_of(*fleet(4, lambda number: f"ns-{number}"))
    settings = softening(pods=2, namespaces=2)
    others = tuple(decoded(tainting(node(number), name=f"r-{number}"))[0] for number in range(2))
    sent = send(tainting(node(3)), cluster=cluster, assumed=others, impact=settings)
    assert (sent.softened, sent.judged.allowed) == (True, True)
    assert "it hits 3 pods and 3 namespaces, and the limit is 2 pods and 2 namespaces" in sent.remark


def many(count: int, effect: str = "NoExecute", **fields: Any) -> tuple[Any, ...]:
    rules = [tainting(node(number), effect, name=f"r-{number}", **fields) for number in range(count)]
    return tuple(decoded(rule)[0] for rule in rules)


def judged_alone(assumed: Any, *, nodes: int = 20, **options: Any) -> Any:
    """What /validate says of a rule that /mutate of another replica has left as it is."""
    cluster = inventory_of(*fleet(nodes))
    options = {"impact": softening(), "user": OPERATOR, **options}
    return ask(tainting(node(nodes - 1)), cluster=cluster, assumed=assumed, **options)


def test_what_other_replicas_left_at_the_same_instant_is_not_refused() -> None:
    assert judged_alone(many(8)).allowed
    decision = judged_alone(many(9))
    assert decision.code == 403
    assert "/mutate softens such rules, but did not answer" in refusals(decision)[0]


def test_policy_that_only_warns_says_so_of_each_rule() -> None:
    decision = judged_alone(many(8), mode=PolicyMode.WARN)
    assert "with mode enforce it would become NoSchedule" in decision.warnings[0]


def test_what_was_softened_does_not_speak_against_what_other_replicas_left() -> None:
    softened = many(15, "NoSchedule", annotations=MARKS)
    assert judged_alone(softened).allowed
    assert judged_alone((*softened, *many(9))).code == 403


@table(
    "options",
    {
        "others have one limit": {"user": "dana"},
        "nothing is left where all is softened": {"impact": softening(Softening.ALWAYS)},
        "closed devices are not softened": {"impact": softening(devices=4)},
        "alone over the limit": {"impact": softening(pods=0)},
        "two steps": {"impact": softening(two_step=True)},
    },
)
def test_only_what_mutate_may_have_left_is_let_through(options: Any) -> None:
    assert judged_alone(many(8), **options).code == 403


# --- confirmed, or with broken glass --------------------------------------------------------------


def test_new_text_that_holds_lets_the_rule_pass_as_it_is() -> None:
    text = text_in(send(tainting(), user="dana").judged)
    for settings in (softening(), ALWAYS):
        sent = send(tainting(text=text), impact=settings)
        assert (sent.mutated.patch, sent.judged.allowed) == ((), True)


def test_text_of_a_softened_rule_confirms_no_no_execute_afterwards() -> None:
    text = text_in(send(tainting(), user="dana").judged)
    stored = stored_softened(annotations={CONFIRM_IMPACT: text})
    again = send(tainting(annotations={**MARKS, CONFIRM_IMPACT: text}), stored)
    assert (again.softened, again.stored["spec"]) == (True, stored["spec"])
    faster = {**MARKS, CONFIRM_IMPACT: text, EVICTIONS_PER_SECOND: "100"}
    assert send(tainting(annotations=faster), stored).softened


def test_stored_text_of_a_rule_that_was_not_softened_still_holds() -> None:
    text = text_in(send(tainting(), user="dana").judged)
    earlier = tainting(text=text, added=NOW)
    assert send(earlier, tainting(text=text, added=LATER)).mutated.patch == ()


@pytest.mark.parametrize("text", ["renew", "v1 devices=8 claims=4 pods=4 namespaces=1 of=aaaaaaaaaaaaaaaa"])
@pytest.mark.parametrize("form", [tainting, stored_softened])
def test_text_that_does_not_hold_is_refused_with_one_that_does(text: str, form: Any) -> None:
    sent = send(form(annotations={**MARKS, CONFIRM_IMPACT: text} if form is tainting else {CONFIRM_IMPACT: text}))
    assert sent.judged.code == 403
    assert text_in(sent.judged)
    assert "/mutate" not in " ".join(refusals(sent.judged))


def test_text_for_less_is_refused_although_the_form_would_do_without_one() -> None:
    """The worker would take its figures for a ceiling."""
    text = text_in(send(stored_softened(), cluster=inventory_of(*fleet(5)), user="dana").judged)
    given = stored_softened(annotations={CONFIRM_IMPACT: text})
    sent = send(given, stored_softened(), cluster=inventory_of(*fleet(9)))
    assert refusals(sent.judged)[1].startswith("was printed for less: now 18 devices")


def test_who_may_confirm_more_gets_a_text_for_a_softened_rule() -> None:
    """Its ceiling for the worker may be lower than the limit of who confirms it."""
    settings = softening(others=ImpactLimits(pods=None))
    stored = stored_softened()
    asked = send(stored_softened(annotations={CONFIRM_IMPACT: "renew"}), stored, user="dana", impact=settings)
    text = text_in(asked.judged)
    assert asked.judged.code == 403
    answer = send(stored_softened(annotations={CONFIRM_IMPACT: text}), stored, user="dana", impact=settings)
    assert answer.judged.allowed
    plain = tainting(text="renew")
    assert len(refusals(send(plain, tainting(), user="dana", impact=settings).judged)) == 1


def test_broken_glass_is_not_softened() -> None:
    for when in (Softening.OVER, Softening.ALWAYS):
        settings = softening(when, break_glass_groups=("oncall",))
        sent = send(tainting(), impact=settings, groups=["oncall"])
        assert (sent.mutated.patch, sent.judged.allowed, sent.judged.broke_glass) == ((), True, True)
        assert send(tainting(), impact=settings, groups=["others"]).softened


# --- modes ----------------------------------------------------------------------------------------


def test_policy_that_only_warns_softens_nothing_and_says_what_it_would_do() -> None:
    sent = send(tainting(), mode=PolicyMode.WARN)
    assert (sent.mutated.patch, sent.judged.allowed, sent.judged.turned_down) == ((), True, False)
    assert sent.judged.warnings[0] == (
        "spec.deviceSelector: hits 8 devices, 4 pods in 1 namespace: the limit is 3 pods;"
        " with mode enforce it would become NoSchedule with devicetaint.io/evict (rule impact)"
    )
    assert send(tainting(), mode=PolicyMode.WARN, user="dana").judged.turned_down


def test_policy_that_is_off_softens_nothing() -> None:
    for old in (None, stored_softened()):
        assert send(tainting(), old, mode=PolicyMode.OFF, impact=ALWAYS).mutated.patch == ()


# --- by hand --------------------------------------------------------------------------------------


def test_rule_that_asks_our_worker_gets_the_mark() -> None:
    sent = send(tainting(effect="NoSchedule", evict=True))
    assert (sent.softened, sent.judged.allowed) == (True, True)
    assert sent.remark == "was marked with devicetaint.io/softened-from; the limit is 3 pods"
    assert [each["path"] for each in sent.mutated.patch] == ["/metadata/annotations/devicetaint.io~1softened-from"]
    within = send(tainting(node(0), "NoSchedule", evict=True), impact=ALWAYS)
    assert (within.mutated.patch, within.judged.allowed) == ((), True)
    assert send(tainting(effect="NoSchedule", evict=True), user="dana").judged.code == 403
    assert send(tainting(effect="None", evict=True)).mutated.findings == ()


@pytest.mark.parametrize("mark", [None, "NoSchedule"])
def test_mark_is_not_taken_off_without_being_judged(mark: str | None) -> None:
    annotations = {EVICT: "true"} | ({} if mark is None else {SOFTENED_FROM: mark})
    bare = tainting(effect="NoSchedule", annotations=annotations)
    refused = send(bare, stored_softened(), user="dana")
    assert refused.judged.code == 403
    by_operator = send(bare, stored_softened())
    assert (by_operator.softened, by_operator.judged.allowed) == (True, True)
    more = softening(others=ImpactLimits(pods=9))
    assert send(bare, stored_softened(), user="dana", impact=more).judged.allowed
    calmer = tainting(effect="NoSchedule")
    assert send(calmer, stored_softened(), user="dana").judged.allowed


def test_warning_says_that_nothing_evicts() -> None:
    sent = send(tainting(), worker_problem="no eviction worker holds its lease")
    assert sent.remark == (
        "NoExecute became NoSchedule with annotation devicetaint.io/evict; no eviction worker holds its lease;"
        " the limit is 3 pods"
    )


def test_missing_annotations_are_made() -> None:
    rule = tainting()
    del rule["metadata"]["annotations"]
    assert send(rule).softened


# --- what is sent again -------------------------------------------------------------------------------


@table(
    "again",
    {
        "server-side apply": tainting(annotations=MARKS, added=LONG_AGO),
        "put, and the server has set the time": tainting(added=NOW),
        "a minute ago": tainting(added=NOW - timedelta(seconds=60)),
        "a minute ahead": tainting(added=NOW + timedelta(seconds=60)),
        "without the mark": stored_softened(added=LONG_AGO, annotations={SOFTENED_FROM: "x"}),
    },
)
@pytest.mark.parametrize("mode", [PolicyMode.ENFORCE, PolicyMode.WARN])
def test_rule_that_is_sent_again_is_what_is_stored(again: Any, mode: PolicyMode) -> None:
    """Also when it would be within the limit by now, or the impact is not known."""
    stored = stored_softened(added=LONG_AGO)
    for options in ({}, {"cluster": UNKNOWN}, {"impact": softening(pods=100)}, {"impact": softening(devices=0)}):
        sent = send(again, stored, mode=mode, **options)
        assert sent.stored["spec"] == stored["spec"]
        assert sent.softened
        assert sent.judged.allowed
        assert sent.remark.endswith("; as before")
        assert not sent.mutated.softened


def test_time_that_the_author_gives_is_kept_if_it_is_later() -> None:
    """An earlier one in a manifest must not start the rule again with each apply."""
    stored = stored_softened(added=LONG_AGO)
    assert send(tainting(added=LATER), stored).time == format_time(LATER)
    earlier = send(tainting(added=LONG_AGO - timedelta(hours=1)), stored)
    assert (earlier.softened, earlier.time) == (True, format_time(LONG_AGO))
    untimed = stored_softened()
    del untimed["spec"]["taint"]["timeAdded"]
    assert send(tainting(added=LATER), untimed).time == format_time(LATER)


def test_rule_without_time_gets_the_stored_one() -> None:
    again = tainting()
    del again["spec"]["taint"]["timeAdded"]
    assert send(again, stored_softened(added=LONG_AGO)).time == format_time(LONG_AGO)


def test_narrower_rule_stays_softened_and_a_wider_one_is_judged() -> None:
    narrower = send(tainting(node(0)), stored_softened(added=NOW))
    assert (narrower.softened, narrower.remark.endswith("; as before")) == (True, True)
    wider = send(tainting(), stored_softened(node(0)))
    assert (wider.softened, wider.mutated.softened, wider.judged.allowed) == (True, True, True)
    other_key = send(tainting(node(0), key="other.example.com/k"), stored_softened(node(0)))
    assert not other_key.softened
    assert send({**tainting({})}, stored_softened(node(0))).judged.code == 403


def test_higher_rate_is_judged_and_softened() -> None:
    profile = (EvictionProfile(rate=5.0),)
    faster = send(tainting(annotations={EVICTIONS_PER_SECOND: "9"}), stored_softened(), eviction=profile)
    assert (faster.softened, faster.mutated.softened, faster.judged.allowed) == (True, True, True)


def test_stored_rule_that_evicts_is_left_alone() -> None:
    """What it did before is not judged again, so it is not softened either."""
    labelled = tainting(annotations={"x": "y"})
    assert send(labelled, tainting(), impact=ALWAYS).mutated.patch == ()


def test_rule_that_is_raised_is_softened() -> None:
    """Intel's WARNING, then CRITICAL."""
    raised = send(tainting(added=LONG_AGO), tainting(effect="NoSchedule", added=LONG_AGO))
    assert (raised.softened, raised.judged.allowed, raised.time) == (True, True, format_time(NOW))


def entry(manager: str, second: int, **fields: Any) -> dict[str, Any]:
    time = f"2026-06-01T11:00:{second:02}Z"
    return {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:spec": {}}, **fields}


def managed(rule: Any, *entries: Any) -> Any:
    return {**rule, "metadata": {**rule["metadata"], "managedFields": list(entries)}}


def test_time_of_a_manager_stays_as_it_is_stored() -> None:
    """The API server takes it back by itself only if no other manager wrote in between."""
    stored = managed(stored_softened(added=LONG_AGO), entry("operator", 1), entry("evict", 2))
    again = managed(tainting(annotations=MARKS, added=LONG_AGO), entry("evict", 2), entry("operator", 9))
    sent = send(again, stored)
    assert sent.stored["metadata"]["managedFields"] == stored["metadata"]["managedFields"]
    same = send(managed(again, *stored["metadata"]["managedFields"]), stored)
    assert [each["path"] for each in same.mutated.patch] == ["/spec/taint/effect"]


@table(
    "entries",
    {
        "another manager": [entry("evict", 2), entry("kubectl", 9)],
        "one more": [entry("evict", 2), entry("operator", 9), entry("kubectl", 9)],
        "other fields": [entry("evict", 2), entry("operator", 9, fieldsV1={"f:spec": {"f:x": {}}})],
        "none": [],
        "of another type": ["text", 7],
    },
)
def test_managers_that_differ_are_left_to_the_server(entries: Any) -> None:
    stored = managed(stored_softened(added=LONG_AGO), entry("operator", 1), entry("evict", 2))
    sent = send(managed(tainting(annotations=MARKS, added=LONG_AGO), *entries), stored)
    assert sent.stored["metadata"]["managedFields"] == entries


def test_managers_of_a_rule_that_is_judged_again_are_left_to_the_server() -> None:
    stored = managed(stored_softened(node(0)), entry("operator", 1))
    sent = send(managed(tainting(), entry("operator", 9)), stored)
    assert (sent.softened, sent.stored["metadata"]["managedFields"]) == (True, [entry("operator", 9)])


# --- never confirmed ------------------------------------------------------------------------------


@table(
    "confirmable, until",
    {
        "confirmable": (True, " before devicetaint.io/confirm-impact confirms it"),
        "not confirmable": (False, ", as no one may confirm it (confirmable: false)"),
    },
)
def test_a_softened_rule_is_told_what_its_eviction_waits_for(until: str, *, confirmable: bool) -> None:
    entry = ImpactLimits(ACCOUNT, pods=3, soften=Softening.OVER, confirmable=confirmable)
    sent = send(tainting(), impact=ImpactSettings(limits=(entry, ImpactLimits(pods=3))))
    assert sent.softened
    assert f"the limit is 3 pods: no pod is evicted{until}" in [each.error.detail for each in sent.judged.findings]
