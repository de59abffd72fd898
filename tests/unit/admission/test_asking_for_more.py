"""Annotations of ours that ask for more on a rule that is there already: judged as if the rule was new."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, decoded
from tests.tables import table
from tests.unit.admission.guarding import (
    OTHER,
    UNKNOWN,
    UNREADABLE,
    allowing,
    ask,
    fleet,
    node,
    over,
    refusals,
    tainting,
    text_in,
    told,
)
from tests.unit.inventory.values import inventory_of
from webhook.api.rules import (
    CONFIRM_IMPACT,
    EVICTED_PODS,
    EVICTIONS_PER_SECOND,
    EXPIRES_AT,
    HARDWARE,
    SCOPE,
    SOFTENED_FROM,
)
from webhook.inventory.rule_delta import asks_for_more
from webhook.inventory.state import Sight
from webhook.policy.match import ANONYMOUS
from webhook.policy.model import (
    Action,
    EvictionProfile,
    ImpactLimits,
    ImpactSettings,
    PolicyMode,
    RequesterMatch,
    TaintMatch,
)

LARGE = inventory_of(*fleet(100))
SMALL = inventory_of(*fleet(4))
LATER = NOW + timedelta(days=4)
MADE_UP = "v1 devices=8 claims=4 pods=4 namespaces=1 of=aaaaaaaaaaaaaaaa"
OLD_CODE = "v1.9999999999.8.4.4.1." + "A" * 38
CAREFUL = "oncall"
GLASS = ImpactSettings(break_glass_groups=(CAREFUL,))


def asked(text: str | None = None, *, rate: str | None = None, **options: Any) -> Any:
    """A rule that asks our worker to empty every device of the driver."""
    annotations = {} if rate is None else {EVICTIONS_PER_SECOND: rate}
    return tainting(effect="NoSchedule", evict=True, text=text, annotations=annotations, **options)


def text_for(cluster: Any, settings: ImpactSettings, **options: Any) -> str:
    """The text that a refusal prints."""
    return text_in(ask(asked(**options), cluster=cluster, impact=settings))


# --- the text (R4) ---------------------------------------------------------------------------------


def test_larger_text_is_refused_also_while_the_rule_needs_none() -> None:
    """R4: its figures would be the ceiling for when the rule has come to hit more."""
    larger = asked(text_for(LARGE, allowing(pods=50)))
    for old in (asked(), None):
        (found,) = refusals(ask(larger, old, cluster=SMALL, impact=allowing(pods=50)))
        assert found.startswith(
            "says more than is hit: 200 devices (today 8), 100 claims (today 4), 100 pods (today 4)"
        )
        assert text_in(ask(larger, old, cluster=SMALL, impact=allowing(pods=50))).startswith("v1 devices=8 claims=4 ")
    assert ask(larger, larger, cluster=SMALL, impact=allowing(pods=50)).allowed, "it is there already"


@pytest.mark.parametrize("action", Action)
def test_text_is_not_set_while_the_impact_is_unknown(action: Action) -> None:
    """R4: nothing tells whether it says far more."""
    text, settings = text_for(SMALL, allowing(pods=0)), ImpactSettings(unknown_impact=action)
    found = refusals(ask(asked(text), asked(), cluster=UNKNOWN, impact=settings))
    assert found[-1] == "cannot be compared with the impact: claims were not read yet; try again in a while"
    assert ask(asked(text), asked(text), cluster=UNKNOWN, impact=settings).allowed


def test_text_does_not_expire() -> None:
    """A rule in Git is applied again after years."""
    text = text_for(LARGE, allowing(pods=50), added=LATER)
    assert ask(asked(text, added=LATER), cluster=LARGE, impact=allowing(pods=50), now=LATER).allowed


def test_text_for_less_than_the_rule_hits_now_is_refused_where_it_is_needed() -> None:
    """R4."""
    text = text_for(SMALL, allowing(pods=2))
    found = refusals(ask(asked(text), asked(), cluster=LARGE, impact=allowing(pods=50)))
    assert found[1] == (
        "was printed for less: now 200 devices (at most 9), 100 claims (at most 5), 100 pods (at most 5)"
    )
    assert ask(asked(text), asked(), cluster=LARGE, impact=allowing(pods=500)).allowed, "the worker's ceiling is lower"


def test_what_was_evicted_for_the_rule_stands_in_its_text() -> None:
    stored = {**asked(), "status": {"conditions": [{"type": EVICTED_PODS, "status": "True", "message": "96"}]}}
    stored["metadata"] = {**stored["metadata"], "uid": "u"}
    rule, _ = decoded(stored)
    refused = ask(asked("renew"), stored, cluster=inventory_of(*fleet(100), rule), impact=allowing(pods=50))
    text = text_in(refused)
    assert text.startswith("v1 devices=200 claims=100 pods=100 namespaces=1 done=96 of=")
    again = ask(asked(text), stored, cluster=inventory_of(*fleet(100), rule), impact=allowing(pods=50))
    assert again.allowed
    forged = ask(
        asked(text.replace("done=96", "done=999")), stored, cluster=inventory_of(*fleet(100), rule), impact=allowing()
    )
    assert refusals(forged)[0].startswith("says more than is hit: 999 done (today 96); ")


# --- who, and under which limit --------------------------------------------------------------------

CONFIRMERS = ImpactSettings(limits=(ImpactLimits(pods=2),), confirmers=RequesterMatch(groups=("sre",)))
NOBODY = ImpactSettings(limits=(ImpactLimits(RequesterMatch(users=("bot",)), pods=2, confirmable=False),))
NOT_YOU = "may be set by the policy's confirmers alone, and the requester is none of them"


def test_only_confirmers_confirm() -> None:
    refused = ask(asked(), impact=CONFIRMERS, groups=["dev"])
    assert "or to go ahead, one of the policy's confirmers must set annotation" in refusals(refused)[0]
    assert "or to go ahead, set annotation" in refusals(ask(asked(), impact=CONFIRMERS, groups=["sre"]))[0]
    confirmed = asked(text_in(refused))
    assert NOT_YOU in "".join(refusals(ask(confirmed, impact=CONFIRMERS, groups=["dev"])))
    assert ask(confirmed, impact=CONFIRMERS, groups=["sre"]).allowed
    assert ask(confirmed, confirmed, impact=CONFIRMERS, groups=["dev"]).allowed, "it was set by a confirmer"


@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
@pytest.mark.parametrize("mode", PolicyMode)
def test_nobody_else_plants_a_text_where_none_is_asked_for(mode: PolicyMode, effect: str) -> None:
    settings = ImpactSettings(limits=(ImpactLimits(pods=None),), confirmers=CONFIRMERS.confirmers)
    text = text_in(ask(tainting({}, effect, text="renew"), impact=settings, groups=["sre"]))
    (found,) = refusals(ask(tainting(effect=effect, text=text), impact=settings, groups=["dev"], mode=mode))
    assert found.startswith(NOT_YOU)


def test_under_a_limit_that_nobody_confirms_no_text_counts() -> None:
    text = text_in(ask(asked(), impact=ImpactSettings(limits=(ImpactLimits(pods=2),)), user="bot"))
    settings = structs.replace(NOBODY, limits=(*NOBODY.limits, ImpactLimits(pods=2)))
    (refused,) = refusals(ask(asked(), impact=settings, user="bot"))
    assert refused.endswith("the limit is 2 pods; no one may confirm it (confirmable: false); narrow the selector")
    found = refusals(ask(asked(text), impact=settings, user="bot"))
    assert found[-1] == "confirms nothing: by the policy no one may confirm this (confirmable: false)"
    assert ask(asked(text), impact=settings, user="jane").allowed
    faster = ask(asked(text, rate="1000"), asked(text, rate="1"), impact=settings, user="bot")
    assert not faster.allowed, "a text that was set before does not help either"


@pytest.mark.parametrize("effects", [(), ("NoExecute",)])
@pytest.mark.parametrize("evict", [False, True])
def test_no_text_is_planted_under_a_limit_that_nobody_confirms(effects: tuple[str, ...], *, evict: bool) -> None:
    """While the rule has effect None, another entry may be the one for its effect."""
    taints = TaintMatch(effects=effects) if effects else None
    fixed = ImpactLimits(taints=taints, pods=3, confirmable=False)
    settings = ImpactSettings(limits=(fixed, ImpactLimits()))
    acting = tainting(effect="NoSchedule" if evict else "NoExecute", evict=evict, text="renew")
    text = text_in(ask(acting, impact=ImpactSettings(limits=(ImpactLimits(pods=0),))))
    (found,) = refusals(ask(tainting(effect="None", text=text), impact=settings))
    assert found == "confirms nothing: by the policy no one may confirm this (confirmable: false)"


# --- what is judged ---------------------------------------------------------------------------------


def test_rule_that_is_being_deleted_is_judged_like_any_other() -> None:
    """R1, R4: a finalizer keeps it, and it goes on acting."""
    leaving: dict[str, Any] = {"deletionTimestamp": "2026-06-01T11:00:00Z", "finalizers": ["example.com/keep"]}
    quiet = tainting(effect="NoSchedule")
    for new, old in ((asked(), quiet), (asked(MADE_UP), asked()), (asked(rate="1000"), asked(rate="1"))):
        new, old = ({**each, "metadata": {**each["metadata"], **leaving}} for each in (new, old))  # noqa: PLW2901
        assert not ask(new, old, cluster=LARGE).allowed
        assert ask(old, old, cluster=LARGE).allowed


# --- the rate (R4) ---------------------------------------------------------------------------------


@table(
    "before, after, more",
    {
        "higher": ("1", "2", True),
        "lower": ("2", "1", False),
        "the same": ("5", "5", False),
        "the same in other words": ("5", "05", False),
        "as high as the fastest profile, though a slower one may have held": (None, "10", True),
        "as low as the slowest profile": (None, "5", False),
        "lower than any profile's": (None, "4", False),
        "the policy's again, which any rule may have": ("1", None, False),
        "no number leaves the policy's": ("1", "many", False),
        "nor is zero a rate": ("20", "0", False),
        "nor what the worker takes for none": ("20", "1" + "0" * 19, False),
        "the highest that it takes": ("20", "9" * 19, True),
        "instead of none that was understood": ("many", "6", True),
    },
)
def test_rate_is_raised_if_some_pod_may_go_sooner(before: str | None, after: str | None, *, more: bool) -> None:
    """R4: without a rate of its own a rule has those of the profiles, here 5 and 10."""
    new, old = (decoded(asked(rate=rate))[0] for rate in (after, before))
    assert asks_for_more(new, old, (5.0, 10.0)) is more


def test_literal_rate_of_an_older_revision_counts_too() -> None:
    """R4."""
    new, old = (decoded(tainting(evictionsPerSecond=rate))[0] for rate in (9, 1))
    assert asks_for_more(new, old, (5.0,))
    assert not asks_for_more(old, new, (5.0,))


@pytest.mark.parametrize("rate", ["11", "100000"])
def test_raised_rate_is_judged_against_the_limits_of_today(rate: str) -> None:
    """R4: without a text that holds today it is refused, and with one it passes."""
    settings = allowing(pods=2)
    stale = asked(text_for(SMALL, settings), rate="1")
    for text in (stale["metadata"]["annotations"][CONFIRM_IMPACT], None):
        refused = ask(asked(text, rate=rate), stale, cluster=LARGE, impact=settings)
        assert over(refused) == ["limit:pods"]
        assert not refused.allowed
    assert ask(asked(text_in(refused), rate=rate), stale, cluster=LARGE, impact=settings).allowed
    assert ask(asked(text_in(refused), rate=rate), asked(text_in(refused), rate="1"), cluster=LARGE).allowed


@pytest.mark.parametrize("effect", ["None", "NoSchedule"])
def test_rate_of_a_rule_that_does_not_evict_does_not_matter(effect: str) -> None:
    """R4: once it is to evict, all of it is judged."""
    slow, fast = (tainting({}, effect, annotations={EVICTIONS_PER_SECOND: rate}) for rate in ("1", "1000"))
    decision = ask(fast, slow, cluster=LARGE)
    assert (decision.allowed, told(decision)) == (True, [])


def test_rates_of_the_policy_are_those_of_its_profiles() -> None:
    """R4."""
    slow = (EvictionProfile(rate=0.5), EvictionProfile())
    assert told(ask(asked(rate="10"), asked())) == []
    raised = ask(asked(rate="10"), asked(), eviction=slow)
    assert (raised.allowed, [severity for severity, _ in told(raised)]) == (True, ["warn"])


@pytest.mark.parametrize(
    "more", [{"rate": "1000"}, {"text": "new"}, {"evict": True}], ids=["a rate", "a text", "a request to evict"]
)
def test_rule_past_its_end_is_not_pressed_on(more: dict[str, Any]) -> None:
    """R4."""
    text = text_in(ask(tainting(effect="NoSchedule", evict=True), impact=allowing(pods=0))) if "text" in more else None
    annotations = {EXPIRES_AT: "2026-06-01T11:00:00Z"}
    old = tainting(effect="NoSchedule", evict="evict" not in more, annotations=annotations)
    rate = {EVICTIONS_PER_SECOND: more["rate"]} if "rate" in more else {}
    new = tainting(effect="NoSchedule", evict=True, annotations={**annotations, **rate}, text=text)
    assert [text[:27] for text in refusals(ask(new, old))] == ["was at 2026-06-01T11:00:00Z"]


# --- marks and scopes -------------------------------------------------------------------------------

SOFTENED = tainting(effect="NoSchedule", evict=True, annotations={SOFTENED_FROM: "NoExecute"})


def scoped(scope: str, effect: str = "NoSchedule") -> Any:
    return tainting({**node(0), "device": "gpu-0"}, effect, annotations={SCOPE: scope})


@table(
    "before, after, more",
    {
        "the mark stays": (SOFTENED, SOFTENED, False),
        "the mark is gone": (SOFTENED, asked(), True),
        "NoExecute again": (SOFTENED, tainting(), True),
        "marked, and it evicts no longer": (SOFTENED, tainting(effect="NoSchedule"), False),
        "marked for the first time": (asked(), SOFTENED, False),
        "now for the whole hardware": (scoped("device"), scoped(HARDWARE), True),
        "for the whole hardware as before": (scoped(HARDWARE), scoped(HARDWARE), False),
        "no longer for it": (scoped(HARDWARE), scoped("device"), False),
        "another scope": (scoped("device"), scoped("pool"), False),
        "scoped, and it does nothing": (scoped("device", "None"), scoped(HARDWARE, "None"), False),
    },
)
def test_mark_that_goes_and_scope_that_comes_ask_for_more(before: Any, after: Any, *, more: bool) -> None:
    """Without the mark of a softened rule that evicts the worker's ceiling may be higher."""
    new, old = (decoded(each)[0] for each in (after, before))
    assert asks_for_more(new, old, ()) is more


# --- texts that do not fit (R5) --------------------------------------------------------------------


@pytest.mark.parametrize("mode", PolicyMode)
@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
@pytest.mark.parametrize(("text", "fault"), [(MADE_UP, OTHER), ("renew", UNREADABLE), (OLD_CODE, UNREADABLE)])
def test_text_that_is_not_of_the_rule_is_refused_in_every_mode(
    mode: PolicyMode, effect: str, text: str, fault: str
) -> None:
    """R5."""
    made_up, plain = (tainting(node(0), effect, text=each) for each in (text, None))
    for old in (None, plain):
        decision = ask(made_up, old, mode=mode)
        (found,) = refusals(decision)
        assert found.startswith(f"{fault}; leave the annotation out, or set annotation {CONFIRM_IMPACT} to ")
        assert [error.field for error in decision.errors] == [f"metadata.annotations[{CONFIRM_IMPACT}]"]
        assert decision.assumed is None
        assert ask(tainting(node(0), effect, text=text_in(decision)), old, mode=mode).allowed
    assert ask(made_up, made_up, mode=mode).allowed  # stored already
    assert ask(plain, mode=mode).allowed


def test_text_that_fits_passes_in_mode_off_without_a_word() -> None:
    """R5."""
    text = text_in(ask(tainting({})))
    decision = ask(tainting({}, text=text), mode=PolicyMode.OFF)
    assert (decision.allowed, told(decision), "impact" in decision.annotations) == (True, [], False)


def test_in_files_a_text_must_be_of_its_rule_and_nobody_asks_who_confirms() -> None:
    """R5."""
    text = text_in(ask(tainting(node(0)), impact=allowing(pods=0)))
    assert refusals(ask(tainting(node(0), text=MADE_UP), sight=None, offline=True)) == [OTHER]
    for offline in (True, False):
        assert told(ask(tainting(node(0), text=text), sight=None, offline=offline)) == []
    assert ask(tainting(node(0), text=text), sight=None, offline=True, impact=CONFIRMERS, user=ANONYMOUS).allowed
    assert not ask(tainting(node(0), text=text), sight=None, offline=True, impact=CONFIRMERS, user="dev").allowed


def test_rule_that_does_nothing_yet_is_confirmed_for_what_it_will_do() -> None:
    """As in the KEP, where figures are looked at before the effect is raised."""
    settings = allowing(pods=2)
    text = text_in(ask(tainting(), impact=settings))
    still = ask(tainting(effect="None", text=text), impact=settings)
    assert still.allowed
    assert ask(tainting(text=text), tainting(effect="None", text=text), impact=settings).allowed
    assert not ask(tainting(text=text), tainting(effect="None", text=text), cluster=LARGE, impact=settings).allowed
    far = ask(tainting(effect="None", text=text_in(ask(tainting(), cluster=LARGE))), impact=settings)
    assert "says more than is hit" in refusals(far)[0]


# --- break-glass (R5, R11) -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", PolicyMode)
@pytest.mark.parametrize("sight", [Sight(SMALL), UNKNOWN], ids=["seen", "unknown"])
@pytest.mark.parametrize("updated", [False, True], ids=["created", "updated"])
def test_text_of_who_may_break_the_glass_passes_and_is_audited(
    mode: PolicyMode, sight: Sight, *, updated: bool
) -> None:
    """R5, R11."""
    rule, old = tainting(node(0), text=MADE_UP), tainting(node(0)) if updated else None
    decision = ask(rule, old, sight=sight, impact=GLASS, mode=mode, groups=[CAREFUL])
    assert decision.allowed
    assert "warn" in {severity for severity, _ in told(decision)}
    assert decision.annotations["impact"].endswith("break-glass")
    assert not decision.turned_down, "the glass lets it pass, and not the mode"
    others = ask(rule, old, sight=sight, impact=GLASS, mode=mode)
    assert not others.allowed
    assert "break-glass" not in others.annotations.get("impact", "")


@table(
    "new, old, sight",
    {
        "unknown impact": (tainting({}), None, UNKNOWN),
        "widened": (tainting({}), tainting(node(0)), Sight(SMALL)),
        "expired, no cluster": (tainting(node(0), annotations={EXPIRES_AT: "2026-06-01T11:00:00Z"}), None, None),
        "raised past its end": (
            tainting(node(0), "NoSchedule", annotations={EXPIRES_AT: "2026-06-01T11:00:00Z"}),
            tainting(node(0), "None"),
            Sight(SMALL),
        ),
    },
)
def test_whatever_passes_by_break_glass_says_so_in_the_audit_log(new: Any, old: Any, sight: Sight | None) -> None:
    """R11."""
    settings = structs.replace(GLASS, two_step=True)
    assert not ask(new, old, sight=sight, impact=settings, groups=["others"]).allowed
    decision = ask(new, old, sight=sight, impact=settings, groups=["others", CAREFUL])
    assert decision.allowed
    assert decision.annotations["impact"].endswith("break-glass")
    assert (decision.assumed is None) is (sight is None), "it counts in the window like any other"


def test_what_only_the_mode_lets_pass_is_not_put_down_to_break_glass() -> None:
    """R11."""
    decision = ask(tainting({}), impact=GLASS, mode=PolicyMode.WARN, groups=[CAREFUL])
    assert decision.allowed
    assert "break-glass" not in decision.annotations["impact"]


# --- texts that are left behind --------------------------------------------------------------------


def test_update_that_leaves_its_text_behind_gets_a_warning() -> None:
    """R5: narrowing needs no text, and the worker does not go by one for another selector."""
    text = text_in(ask(tainting({})))
    decision = ask(tainting(node(0), text=text), tainting({}, text=text))
    assert decision.allowed
    assert told(decision) == [
        ("warn", "was printed for the object as it was: from now on the limits of the policy hold again")
    ]
    assert told(ask(tainting({}, text=text, added=NOW + timedelta(hours=1)), tainting({}, text=text))) == []
    assert told(ask(tainting(node(0), "NoSchedule", text=text), tainting({}, text=text))) == []


def test_new_text_for_a_narrowed_rule_is_to_be_had() -> None:
    """Any other text in the annotation is refused, with one for the rule as it is."""
    settings = allowing(pods=0)
    narrow = {"driver": DRIVER, "pool": "node-1"}
    asking = ask(tainting(narrow, annotations={CONFIRM_IMPACT: "renew"}), tainting(narrow), impact=settings)
    assert ask(tainting(narrow, text=text_in(asking)), tainting(narrow), impact=settings).allowed
