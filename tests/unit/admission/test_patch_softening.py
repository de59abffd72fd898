"""NoExecute taints of patches that become NoSchedule, and what the guard makes of them then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW, NOW_TEXT, make_admission_request, make_context, make_taint
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing, over, refusals, text_in, told
from tests.unit.admission.patch_guarding import (
    CREATED_TEXT,
    FIRST,
    ask_patch,
    cel,
    evicting,
    known,
    patching,
    racks,
    send_patch,
    taints_of,
)
from tests.unit.admission.softened import OPERATOR, softening
from webhook.admission.chain import policy_part
from webhook.api.meta import format_time
from webhook.api.patches import SOFTENED_KEYS
from webhook.api.rules import EVICT, SOFTENED_FROM
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, Match, PolicyMode, Rule, Softening, TaintMatch

OTHER: Final = "o.example.com/k"
ALWAYS: Final = softening(Softening.ALWAYS)


def sent(patch: Any, old: Any = None, **options: Any) -> tuple[Any, Any, Any]:
    return send_patch(patch, old, **{"user": OPERATOR, "impact": softening(), **options})


def remark(decision: Any) -> str:
    return "".join(str(each.error) for each in decision.findings if each.code == "DT121")


def keys_in(patch: Any) -> str:
    return str(patch["metadata"].get("annotations", {}).get(SOFTENED_KEYS, ""))


def test_patch_over_the_limit_is_softened_and_admitted() -> None:
    mutated, judged, stored = sent(patching(cel(FIRST)))
    assert mutated.softened
    assert taints_of(stored) == [(KEY, "NoSchedule", NOW_TEXT)]
    assert keys_in(stored) == KEY
    assert remark(mutated) == (
        f"spec.devices.taints[0].effect: Forbidden: NoExecute became NoSchedule with annotation {SOFTENED_KEYS};"
        " the limit is 3 pods"
    )
    assert mutated.annotations["impact"].endswith("podGroups=0 over=limit:pods")
    assert mutated.annotations["decision"] == "softened"
    changed = [str(each["path"]).rpartition("/")[2] for each in mutated.patch]
    assert changed == ["effect", "devicetaint.io~1softened-keys"]
    assert judged.allowed
    assert judged.annotations["impact"].endswith(" over=limit:pods softened")
    assert judged.assumed is not None
    for rule in judged.assumed.rules:
        assert (rule.softened, rule.meta.annotations) == (True, {EVICT: "true", SOFTENED_FROM: "NoExecute"})


def test_patch_within_the_limit_stays_as_it_is_and_counts_for_the_next() -> None:
    mutated, judged, stored = sent(patching({"driver": DRIVER, "pool": "node-0"}))
    assert (mutated.patch, mutated.softened, keys_in(stored)) == ((), False, "")
    assert mutated.assumed.impact.pods == {"u-0"}
    assert judged.allowed


@pytest.mark.parametrize(("number", "softened"), [(16, True), (17, False)])
def test_a_patch_with_more_taints_than_it_may_have_is_not_measured_to_be_softened(
    number: int, *, softened: bool
) -> None:
    taints = [evicting(key=f"o.example.com/k{at}") for at in range(number)]
    mutated, judged, _ = sent(patching({"pool": "node-0"}, *taints), impact=ALWAYS)
    assert (mutated.softened, judged.allowed) == (softened, softened)


def test_all_are_softened_where_the_entry_says_always() -> None:
    mutated, judged, stored = sent(patching({"pool": "node-0"}, evicting(), make_taint(key=OTHER)), impact=ALWAYS)
    assert remark(mutated).endswith("; the policy softens every such rule")
    assert taints_of(stored) == [(KEY, "NoSchedule", NOW_TEXT), (OTHER, "NoSchedule", "2026-06-01T11:59:30Z")]
    assert keys_in(stored) == KEY
    assert judged.allowed


def test_stored_text_that_holds_keeps_a_patch_as_it_is_where_all_are_softened() -> None:
    text = text_in(ask_patch(patching({"pool": "node-0"}), impact=allowing(pods=0)))
    new, old = (patching({"pool": "node-0"}, make_taint(effect=effect), text=text) for effect in ("NoExecute", "None"))
    mutated, judged, stored = sent(new, old, impact=ALWAYS)
    assert (mutated.softened, judged.allowed) == (False, True)
    assert taints_of(stored) == [(KEY, "NoExecute", NOW_TEXT)]  # D-4


@pytest.mark.parametrize(("when", "limit"), [(Softening.ALWAYS, 9), (Softening.OVER, 2)])
def test_stored_text_does_not_end_the_softening_of_a_patch(when: Softening, limit: int) -> None:
    """It is softened once the pods are more than the text says, and stays so when they are fewer again."""
    everywhere = {"driver": DRIVER}
    text, impact = text_in(ask_patch(patching(everywhere), impact=allowing(pods=0))), softening(when, pods=limit)
    stored = sent(patching(everywhere, make_taint(effect="None"), text=text), impact=impact)[2]
    grown = sent(patching(everywhere, text=text, priority=1), stored, impact=impact, cluster=racks(4, pods=3))[2]
    mutated, judged, again = sent(patching(everywhere, text=text, priority=2), grown, impact=impact)
    assert [effect for _, effect, _ in taints_of(grown) + taints_of(again)] == ["NoSchedule", "NoSchedule"]
    assert mutated.softened
    assert judged.allowed


def test_only_taints_whose_entry_softens_are_softened() -> None:
    soft = ImpactLimits(taints=TaintMatch(keys=(KEY,)), pods=9, soften=Softening.ALWAYS)
    impact = ImpactSettings(limits=(soft, ImpactLimits(pods=4)))
    mutated, judged, stored = sent(patching("default", evicting(), evicting(key=OTHER)), impact=impact)
    assert [each[1] for each in taints_of(stored)] == ["NoSchedule", "NoExecute"]
    assert judged.allowed
    strict = ImpactSettings(limits=(soft, ImpactLimits(pods=3)))
    mutated, judged, stored = sent(patching("default", evicting(), evicting(key=OTHER)), impact=strict)
    assert mutated.patch == ()
    assert not judged.allowed, "the other taint alone is over its limit"


@pytest.mark.parametrize("taints", [(evicting(), evicting(key=OTHER)), (evicting(key=OTHER), evicting())])
def test_nothing_is_softened_where_another_taint_is_refused_for_the_same_reason(taints: Any) -> None:
    """Whichever comes first: it would be refused all the same, and the refusal must not speak of /mutate."""
    soft = ImpactLimits(taints=TaintMatch(keys=(KEY,)), pods=3, soften=Softening.OVER)
    impact = ImpactSettings(limits=(soft, ImpactLimits(pods=3)))
    mutated, judged, _ = sent(patching("default", *taints), impact=impact)
    assert (mutated.patch, mutated.findings, judged.allowed) == ((), (), False)
    assert refusals(judged)[0].startswith("hits 8 devices, 4 pods in 1 namespace: the limit is 3 pods; narrow")


@table(
    "options",
    {
        "no cluster": {"sight": None},
        "no cluster, and off": {"sight": None, "mode": PolicyMode.OFF},
        "off": {"mode": PolicyMode.OFF},
    },
)
def test_where_patches_are_not_judged_none_is_softened(options: Any) -> None:
    assert sent(patching(), **options)[0].patch == ()
    assert keys_in(sent(patching("default", evicting()), stored_softened(), **options)[2]) == ""


def test_update_without_an_effect_to_soften_stays_as_it_is() -> None:
    assert sent(patching("default", make_taint(value="v")), patching("default", make_taint()))[0].patch == ()


@table(
    "patch, options",
    {
        "another requester": (patching(), {"user": "dev"}),
        "every device": (patching({}), {}),
        "too many devices": (patching(), {"impact": softening(devices=7)}),
        "two steps": (patching(), {"impact": softening(two_step=True)}),
        "a NoSchedule taint of that key": (patching("default", evicting(), make_taint()), {}),
        "a code": (patching(text="renew"), {}),
        "a filter that cannot be judged": (patching({"deviceClassName": "gone"}), {}),
    },
)
def test_what_is_refused_as_before(patch: Any, options: Any) -> None:
    mutated, judged, _ = sent(patch, **options)
    assert (mutated.patch, mutated.softened) == ((), False)
    assert not judged.allowed


def test_mode_warn_says_what_would_be() -> None:
    mutated, judged, _ = sent(patching(), mode=PolicyMode.WARN)
    assert mutated.patch == ()
    assert judged.allowed
    text = f"the limit is 3 pods; with mode enforce it would become NoSchedule with {SOFTENED_KEYS}"
    assert any(said.endswith(text) for _, said in told(judged))
    assert sent(patching(), mode=PolicyMode.OFF)[0].patch == ()


def test_refusal_says_that_mutate_did_not_answer() -> None:
    decision = ask_patch(patching(), impact=softening(), user=OPERATOR)
    assert "; /mutate softens such taints, but did not answer, or there is one of that key" in refusals(decision)[0]
    twice = ask_patch(patching(), impact=softening(two_step=True), user=OPERATOR)
    assert not any("/mutate" in text for text in refusals(twice))
    assert not any("/mutate" in text for text in refusals(ask_patch(patching(), impact=allowing(pods=3))))


def test_confirmed_patch_keeps_its_effect() -> None:
    text = text_in(ask_patch(patching(), impact=allowing(pods=3)))
    mutated, judged, _ = sent(patching(text=text))
    assert (mutated.patch, judged.allowed) == ((), True)
    glass = softening(break_glass_groups=("sre",))
    mutated, judged, _ = sent(patching(), impact=glass, groups=["sre"])
    assert (mutated.patch, judged.broke_glass) == ((), True)


def test_unknown_impact_is_softened() -> None:
    mutated, judged, stored = sent(patching(), cluster=UNKNOWN)
    assert remark(mutated).endswith("its impact is not known: claims were not read yet")
    assert keys_in(stored) == KEY
    assert judged.allowed
    others_unknown = known(unknown="patches were not read yet")
    mutated, judged, stored = sent(patching(), patches=others_unknown)
    assert remark(mutated).endswith("its impact is not known: patches were not read yet")
    assert (keys_in(stored), judged.allowed) == (KEY, True)
    lenient = softening(unknown_impact=Action.WARN)
    assert sent(patching(), cluster=UNKNOWN, impact=lenient)[0].assumed is None
    assert sent(patching(), patches=others_unknown, impact=lenient)[0].assumed is None
    assert sent(patching(), cluster=UNKNOWN, impact=softening(devices=9))[0].patch == ()


def test_old_time_is_replaced_when_a_taint_is_softened() -> None:
    patch = patching("default", evicting(time_added="2026-06-01T11:00:00Z"))
    _, judged, stored = sent(patch)
    assert taints_of(stored) == [(KEY, "NoSchedule", NOW_TEXT)]
    assert judged.allowed
    young = patching("default", evicting(time_added="2026-06-01T11:59:00Z"))
    assert taints_of(sent(young)[2]) == [(KEY, "NoSchedule", "2026-06-01T11:59:00Z")]
    assert taints_of(sent(patching("default", evicting(time_added=None)))[2]) == [(KEY, "NoSchedule", NOW_TEXT)]


def test_times_of_other_taints_are_set_as_well() -> None:
    patch = patching("default", make_taint(key=OTHER, time_added=None), evicting(time_added=None))
    assert taints_of(sent(patch)[2]) == [(OTHER, "NoSchedule", NOW_TEXT), (KEY, "NoSchedule", NOW_TEXT)]


def stored_softened(**fields: Any) -> Any:
    taint = make_taint(effect="NoSchedule", time_added="2026-06-01T10:00:00Z", **fields)
    return patching("default", taint, softened=KEY)


def test_patch_that_is_sent_again_stays_as_it_is_stored() -> None:
    for again in (patching("default", evicting(time_added=None)), patching("default", evicting())):
        mutated, judged, stored = sent(again, stored_softened())
        assert taints_of(stored) == taints_of(stored_softened())
        assert keys_in(stored) == KEY
        assert remark(mutated).endswith("; as before")
        assert not mutated.softened, "it is counted once"
        assert (judged.allowed, told(judged)) == (True, [])


def test_later_time_of_the_author_counts_when_it_is_sent_again() -> None:
    later = patching("default", evicting(time_added="2026-06-01T10:30:00Z"))
    assert taints_of(sent(later, stored_softened())[2]) == [(KEY, "NoSchedule", "2026-06-01T10:30:00Z")]
    earlier = patching("default", evicting(time_added="2026-06-01T09:00:00Z"))
    assert taints_of(sent(earlier, stored_softened())[2]) == [(KEY, "NoSchedule", "2026-06-01T10:00:00Z")]


def test_time_of_the_present_is_no_time_of_the_author() -> None:
    """Clocks may differ by a minute."""
    present = patching("default", evicting(time_added="2026-06-01T11:59:00Z"))
    assert taints_of(sent(present, stored_softened())[2]) == [(KEY, "NoSchedule", "2026-06-01T10:00:00Z")]


def test_each_taint_that_is_sent_again_keeps_its_own_time() -> None:
    times = {OTHER: "2026-06-01T09:00:00Z", KEY: "2026-06-01T10:00:00Z"}
    taints = [make_taint(key=key, time_added=time) for key, time in times.items()]
    old = patching("default", *taints, softened=f"{KEY},{OTHER}")
    again = patching("default", *[evicting(key=key, time_added=None) for key in times])
    assert taints_of(sent(again, old)[2]) == [(key, "NoSchedule", time) for key, time in times.items()]


def test_patch_that_does_more_is_judged_again() -> None:
    wider = {"driver": DRIVER, "pool": "node-0"}
    old = {**stored_softened(), "spec": patching(wider, make_taint()).get("spec")}
    mutated, judged, _ = sent(patching(), old)
    assert mutated.softened
    assert remark(mutated).endswith("the limit is 3 pods")
    assert judged.allowed


def test_stored_patch_from_before_the_policy_is_left_as_it_is() -> None:
    mutated, judged, _ = sent(patching(), patching(), impact=ALWAYS)
    assert (mutated.patch, told(judged)) == ((), [])


def test_annotation_is_no_way_around_the_guard() -> None:
    """The worker evicts for such a taint, so it counts as one that evicts; who may soften, the policy says."""
    marked = patching("default", make_taint(), softened=KEY)
    assert ask_patch(marked, impact=allowing(pods=4)).annotations["impact"].startswith("devices=8 pools=4")
    assert refusals(ask_patch(marked, impact=allowing(pods=3)))[0].startswith("hits 8 devices, 4 pods")
    added = ask_patch(marked, patching("default", make_taint()), impact=allowing(pods=3))
    assert not added.allowed, "to mark a stored patch is to ask for more"
    assert ask_patch(patching("default", make_taint()), marked, impact=allowing(pods=0)).allowed


def test_rules_on_taints_see_that_a_softened_taint_evicts() -> None:
    no_eviction = Rule("no-eviction", Action.DENY, Match(evict=True))
    judge = Judge(make_context(taint_rules=(no_eviction,)).policy)
    context = make_context(judge=judge, sight=Sight(racks()), patches=known())
    plain, marked = patching("default", make_taint()), patching("default", make_taint(), softened=KEY)
    assert policy_part(make_admission_request(plain), context).findings == ()
    assert policy_part(make_admission_request(marked), context).findings != ()
    assert policy_part(make_admission_request(marked, plain), context).findings != ()
    assert policy_part(make_admission_request(marked, marked), context).findings == ()


def test_stored_text_that_covers_what_is_added_keeps_the_effect() -> None:
    """A text is for the patch as it is, so only a higher priority can add devices to what it confirms."""
    text = text_in(ask_patch(patching(cel(FIRST)), impact=allowing(pods=3)))
    rival = patching(name="rival", created=CREATED_TEXT, priority=1)
    old = patching(cel(FIRST), text=text)
    patches = known([rival, old])
    mutated, judged, _ = sent(patching(cel(FIRST), text=text, priority=2), old, patches=patches)
    assert mutated.patch == ()
    assert judged.allowed
    assert judged.annotations["impact"].endswith(" over=limit:pods confirmed")
    bare = patching(cel(FIRST))
    mutated, _, stored = sent(patching(cel(FIRST), priority=2), bare, patches=known([rival, bare]))
    assert mutated.softened
    assert keys_in(stored) == KEY


# --- times of the taints of a stored patch --------------------------------------------------------


YESTERDAY: Final = format_time(NOW - timedelta(days=1))
BEFORE: Final = format_time(NOW - timedelta(days=2))
LATER: Final = format_time(NOW + timedelta(days=1))
DRIVERS: Final = {"driver": DRIVER}
NODE: Final = {"driver": DRIVER, "pool": "node-0"}
MANY: Final = allowing(pods=100)


def old_patch(filter_: Any = NODE, rate: int = 5, *, text: str | None = None, priority: int = 0, **taint: Any) -> Any:
    given = {"time_added": YESTERDAY, "evictionsPerSecond": rate, **taint}
    return patching(filter_, evicting(**given), text=text, priority=priority)


@table(
    "new, backdated",
    {
        "a higher rate": (old_patch(rate=50), False),
        "a higher rate for fewer devices": (old_patch({**NODE, "device": "gpu-0"}, 50), False),
        "more devices": (old_patch(DRIVERS), True),
        "a higher rate and priority": (old_patch(rate=50, priority=1), True),
        "a higher rate and another value": (old_patch(rate=50, value="b"), True),
        "an earlier time": (old_patch(time_added=BEFORE), True),
    },
)
def test_past_time_counts_only_for_pods_that_an_update_newly_hits(new: Any, *, backdated: bool) -> None:
    decision = ask_patch(new, old_patch(), impact=MANY)
    assert (over(decision), decision.allowed) == ((["backdated"], False) if backdated else ([], True))
    warned = structs.replace(MANY, unknown_impact=Action.WARN)
    assert ask_patch(new, old_patch(), impact=warned, cluster=UNKNOWN).allowed is not backdated


@pytest.mark.parametrize("written", [True, False])
def test_past_time_counts_where_the_patch_had_no_rules(*, written: bool) -> None:
    """It needed more than it may have: an update may be the first that hits anything."""
    first = cel(FIRST, **DRIVERS)
    decision = ask_patch(old_patch(first, 50), old_patch(first), written=written, impact=MANY)
    assert over(decision) == ([] if written else ["backdated"])


@pytest.mark.parametrize("before", [True, False])
def test_text_of_creation_holds_for_an_update_that_newly_hits_nothing(*, before: bool) -> None:
    few = allowing(pods=3)
    text = text_in(ask_patch(patching(DRIVERS), impact=few))
    old, new = old_patch(DRIVERS, text=text if before else None), old_patch(DRIVERS, 50, text=text)
    assert ask_patch(new, old, impact=few).allowed
    assert "another object" not in str(told(ask_patch(new, old, impact=few, cluster=UNKNOWN)))
    assert not ask_patch(old_patch(DRIVERS, 50, text=text, priority=1), old, impact=few).allowed


def test_confirmed_patch_is_not_softened_for_an_update_that_newly_hits_nothing() -> None:
    text = text_in(ask_patch(patching(DRIVERS), impact=allowing(pods=3)))
    old, new = (old_patch(DRIVERS, rate, text=text) for rate in (5, 50))
    mutated, judged, _ = send_patch(new, old, user=OPERATOR, impact=softening())
    assert (mutated.patch, judged.allowed) == ((), True)


OVER, EVERY = Softening.OVER, Softening.ALWAYS
UNTIMED: Final = evicting(time_added=None)
FASTER: Final = evicting(time_added=None, evictionsPerSecond=100)
AS_STORED: Final = evicting(time_added=YESTERDAY)


@table(
    "new, when, time",
    {
        "the same": (patching(NODE, UNTIMED), OVER, YESTERDAY),
        "fewer devices": (patching({**NODE, "device": "gpu-0"}, UNTIMED), OVER, YESTERDAY),
        "more devices": (patching(DRIVERS, UNTIMED), OVER, NOW_TEXT),
        "more devices, always": (patching(DRIVERS, UNTIMED), EVERY, NOW_TEXT),
        "more devices, with the stored time": (patching(DRIVERS, AS_STORED), OVER, NOW_TEXT),
        "more devices, with the stored time, always": (patching(DRIVERS, AS_STORED), EVERY, NOW_TEXT),
        "more devices, with a later time of the author": (patching(DRIVERS, evicting(time_added=LATER)), OVER, LATER),
        "more devices and a higher rate": (patching(DRIVERS, FASTER), OVER, NOW_TEXT),
        "more devices and a higher rate, always": (patching(DRIVERS, FASTER), EVERY, NOW_TEXT),
        "a higher priority": (patching(NODE, UNTIMED, priority=3), EVERY, NOW_TEXT),
        "a higher rate": (patching(NODE, FASTER), EVERY, YESTERDAY),
    },
)
def test_softened_patch_that_may_hit_more_gets_the_present_time(new: Any, when: Softening, time: str) -> None:
    old = patching(NODE, evicting(effect="NoSchedule", time_added=YESTERDAY), softened=KEY)
    impact = softening(when, pods=3 if when is OVER else 100)
    _, judged, stored = send_patch(new, old, user=OPERATOR, impact=impact)
    assert taints_of(stored) == [(KEY, "NoSchedule", time)]
    assert judged.errors == ()


@table(
    "stored, new, times",
    {
        "another effect": ([{"effect": "None"}], [{}], [NOW_TEXT]),
        "less": ([{}], [{"effect": "NoSchedule"}], [NOW_TEXT]),
        "and another time": ([{"effect": "None"}], [{"time_added": BEFORE}], [BEFORE]),
        "and another value": ([{"effect": "None"}], [{"value": "b"}], [YESTERDAY]),
        "the same": ([{}], [{"evictionsPerSecond": 50}], [YESTERDAY]),
        "one of two": ([{"effect": "None"}, {"key": "b/c"}], [{}, {"key": "b/c"}], [NOW_TEXT, YESTERDAY]),
        "one that had both effects": ([{"effect": "None"}, {}], [{}], [YESTERDAY]),
    },
)
def test_taint_whose_effect_alone_changed_gets_the_time_of_the_change(stored: Any, new: Any, times: list[str]) -> None:
    """D-4, which no API server does for patches."""
    old, patch = (patching(NODE, *[evicting(**{"time_added": YESTERDAY, **each}) for each in some])
                  for some in (stored, new))  # fmt: skip
    assert [each[2] for each in taints_of(send_patch(patch, old, impact=MANY)[2])] == times


def test_two_steps_may_be_taken_by_changing_the_effect_alone() -> None:
    old, new = (patching(NODE, evicting(effect=effect, time_added=YESTERDAY)) for effect in ("None", "NoExecute"))
    assert send_patch(new, old, impact=structs.replace(MANY, two_step=True))[1].allowed


FEW: Final = allowing(pods=3)


@table("meta", {"a label": {"labels": {"team": "a"}}, "a finalizer": {"finalizers": ["devicetaint.io/x"]}})
def test_stored_patch_without_a_time_gets_one_by_a_change_beside_its_spec(meta: Any) -> None:
    """As /mutate was away when it was created."""
    stored = patching(DRIVERS, UNTIMED)
    mutated, judged, new = send_patch({**stored, "metadata": {**stored["metadata"], **meta}}, stored, impact=FEW)
    assert (mutated.allowed, judged.allowed) == (True, True)
    assert taints_of(new)[0][2] == NOW_TEXT


@table(
    "new, filter_",
    {
        "an earlier time": (evicting(time_added=format_time(NOW - timedelta(minutes=2))), DRIVERS),
        "more devices": (UNTIMED, NODE),
    },
)
def test_stored_patch_without_a_time_is_judged_for(new: Any, filter_: Any) -> None:
    assert not send_patch(patching(DRIVERS, new), patching(filter_, UNTIMED), impact=FEW)[1].allowed
