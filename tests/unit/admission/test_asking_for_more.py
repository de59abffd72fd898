"""Annotations of ours that ask for more on a rule that is there already: judged as if the rule was new."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import DRIVER, NOW, decoded
from tests.unit.admission.guarding import (
    SECRET,
    UNKNOWN,
    allowing,
    ask,
    code_in,
    fleet,
    node,
    over,
    refusals,
    tainting,
    told,
)
from tests.unit.inventory.values import inventory_of
from webhook.api.rules import CONFIRM_IMPACT, EVICTIONS_PER_SECOND, EXPIRES_AT, HARDWARE, SCOPE, SOFTENED_FROM
from webhook.inventory.rule_delta import asks_for_more
from webhook.inventory.state import Sight
from webhook.policy.model import Action, EvictionProfile, ImpactLimits, ImpactSettings, PolicyMode

LARGE = inventory_of(*fleet(100))
SMALL = inventory_of(*fleet(4))
TWO = ImpactSettings(limits=(ImpactLimits(pods=2),), second_person=True)
MANY = ImpactSettings(limits=(ImpactLimits(pods=50),), second_person=True)
LATER = NOW + timedelta(days=4)
MADE_UP = "v1.9999999999.999999999.999999999.999999999.999999999." + "A" * 38
SAME_USER = "was given to the same user; another user must confirm"
CAREFUL = "oncall"
GLASS = ImpactSettings(break_glass_groups=(CAREFUL,))


def asked(code: str | None = None, *, rate: str | None = None, **options: Any) -> Any:
    """A rule that asks our worker to empty every device of the driver."""
    annotations = {} if rate is None else {EVICTIONS_PER_SECOND: rate}
    return tainting(effect="NoSchedule", evict=True, code=code, annotations=annotations, **options)


def code_for(user: str, cluster: Any, settings: ImpactSettings) -> str:
    """The code that a refusal gives to the user."""
    return code_in(ask(asked(), cluster=cluster, impact=settings, user=user))


# --- the code (R4) ---------------------------------------------------------------------------------


def test_who_was_refused_cannot_swap_in_a_larger_code_of_their_own() -> None:
    """R4."""
    by_two = asked(code_for("bob", SMALL, TWO))
    larger = asked(code_for("alice", LARGE, TWO))
    assert ask(by_two, cluster=SMALL, impact=TWO, user="alice").allowed
    swapped = ask(larger, by_two, cluster=LARGE, impact=TWO, user="alice")
    assert refusals(swapped)[1:] == [SAME_USER]
    assert ask(larger, by_two, cluster=LARGE, impact=TWO, user="carol").allowed


def test_own_code_is_refused_also_while_the_rule_needs_none() -> None:
    """R4: its numbers would be the ceiling for when the rule has come to hit more."""
    larger = asked(code_for("alice", LARGE, MANY))
    text = f"{SAME_USER}; the rule needs no code, so leave the annotation out"
    assert refusals(ask(larger, asked(), cluster=SMALL, impact=MANY, user="alice")) == [text]
    assert refusals(ask(larger, cluster=SMALL, impact=MANY, user="alice")) == [text]
    assert ask(larger, asked(), cluster=SMALL, impact=MANY, user="carol").allowed


def test_own_code_is_refused_also_while_the_impact_is_unknown() -> None:
    """R4."""
    larger = asked(code_for("alice", LARGE, MANY))
    settings = ImpactSettings(limits=MANY.limits, second_person=True, unknown_impact=Action.WARN)
    assert refusals(ask(larger, asked(), cluster=UNKNOWN, impact=settings, user="alice")) == [SAME_USER]
    assert ask(larger, asked(), cluster=UNKNOWN, impact=settings, user="carol").allowed


@pytest.mark.parametrize("cluster", [SMALL, LARGE], ids=["under the limit", "over it"])
def test_expired_code_is_not_taken_for_a_new_one(cluster: Any) -> None:
    """R4."""
    settings = allowing(pods=50)
    late = asked(code_for("alice", LARGE, settings))
    found = refusals(ask(late, asked(), cluster=cluster, impact=settings, now=LATER))
    assert any(text.startswith("expired at 2026-06-04T12:00:00Z") for text in found)
    assert ask(late, late, cluster=cluster, impact=settings, now=LATER).allowed  # stored long ago


def test_code_for_less_than_the_rule_hits_now_is_refused() -> None:
    """R4."""
    code = code_for("alice", SMALL, allowing(pods=2))
    found = refusals(ask(asked(code), asked(), cluster=LARGE, impact=allowing(pods=500)))
    assert [text.partition(":")[0] for text in found] == ["was made for less"]


def test_new_code_on_an_unchanged_rule_is_judged_against_the_limits() -> None:
    """R4: the answer has the figures, and so has the audit log."""
    code = code_for("alice", LARGE, allowing(pods=50))
    decision = ask(asked(code), asked(), cluster=LARGE, impact=allowing(pods=50))
    assert over(decision) == ["limit:pods"]
    assert decision.annotations["impact"].endswith(" confirmed")
    assert decision.assumed is not None


def test_code_may_be_removed_whatever_the_rule_hits() -> None:
    """R4: the worker has the policy's limits for it then."""
    decision = ask(asked(), asked(MADE_UP), cluster=LARGE, impact=allowing(pods=0))
    assert (decision.allowed, told(decision)) == (True, [])


def test_rule_that_is_being_deleted_is_judged_like_any_other() -> None:
    """R1, R4: a finalizer keeps it, and it goes on acting."""
    leaving: dict[str, Any] = {"deletionTimestamp": "2026-06-01T11:00:00Z", "finalizers": ["example.com/keep"]}
    quiet = tainting(effect="NoSchedule")
    for new, old in (
        (asked(), quiet),
        (asked(MADE_UP), asked()),
        (asked(rate="1000"), asked(rate="1")),
    ):
        new, old = ({**each, "metadata": {**each["metadata"], **leaving}} for each in (new, old))  # noqa: PLW2901
        assert not ask(new, old, cluster=LARGE).allowed
        assert ask(old, old, cluster=LARGE).allowed


# --- the rate (R4) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        pytest.param("1", "2", True, id="higher"),
        pytest.param("2", "1", False, id="lower"),
        pytest.param("5", "5", False, id="the same"),
        pytest.param("5", "05", False, id="the same in other words"),
        pytest.param(None, "10", True, id="as high as the fastest profile, though a slower one may have held"),
        pytest.param(None, "5", False, id="as low as the slowest profile"),
        pytest.param(None, "4", False, id="lower than any profile's"),
        pytest.param("1", None, False, id="the policy's again, which any rule may have"),
        pytest.param("1", "many", False, id="no number leaves the policy's"),
        pytest.param("20", "0", False, id="nor is zero a rate"),
        pytest.param("20", "1000000000", False, id="nor what the worker takes for none"),
        pytest.param("20", "999999999", True, id="the highest that it takes"),
        pytest.param("many", "6", True, id="instead of none that was understood"),
    ],
)
def test_rate_is_raised_if_some_pod_may_go_sooner(before: str | None, after: str | None, more: bool) -> None:  # noqa: FBT001
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
    """R4: with the code expired or gone it is refused, and with a new one it passes."""
    settings = allowing(pods=50)
    stale = asked(code_for("alice", LARGE, settings), rate="1")
    for code in (stale["metadata"]["annotations"][CONFIRM_IMPACT], None):
        refused = ask(asked(code, rate=rate), stale, cluster=LARGE, impact=settings, now=LATER)
        assert over(refused) == ["limit:pods"]
        assert not refused.allowed
    again = asked(code_in(refused), rate=rate)
    assert ask(again, stale, cluster=LARGE, impact=settings, now=LATER).allowed


def test_raised_rate_of_a_rule_under_the_limits_passes_with_its_figures() -> None:
    """R4."""
    decision = ask(asked(rate="1000"), asked(rate="1"))
    assert decision.allowed
    assert [severity for severity, _ in told(decision)] == ["warn"]


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
    assert told(ask(asked(rate="10"), asked(), eviction=slow)) != []


@pytest.mark.parametrize(
    "more", [{"rate": "1000"}, {"code": "new"}, {"evict": True}], ids=["a rate", "a code", "a request to evict"]
)
def test_rule_past_its_end_is_not_pressed_on(more: dict[str, Any]) -> None:
    """R4."""
    code = code_in(ask(tainting(effect="NoSchedule", evict=True), impact=allowing(pods=0))) if "code" in more else None
    annotations = {EXPIRES_AT: "2026-06-01T11:00:00Z"}
    old = tainting(effect="NoSchedule", evict="evict" not in more, annotations=annotations)
    rate = {EVICTIONS_PER_SECOND: more["rate"]} if "rate" in more else {}
    new = tainting(effect="NoSchedule", evict=True, annotations={**annotations, **rate}, code=code)
    assert [text[:27] for text in refusals(ask(new, old))] == ["was at 2026-06-01T11:00:00Z"]


@pytest.mark.parametrize(("expires", "allowed"), [("2026-06-01T12:00:00Z", False), ("2026-06-01T12:00:01Z", True)])
def test_rule_may_begin_until_the_second_at_which_it_ends(expires: str, allowed: bool) -> None:  # noqa: FBT001 -- a table's
    rule = tainting(node(0), "NoSchedule", annotations={EXPIRES_AT: expires})
    assert ask(rule).allowed is allowed


# --- marks and scopes -------------------------------------------------------------------------------

SOFTENED = tainting(effect="NoSchedule", evict=True, annotations={SOFTENED_FROM: "NoExecute"})


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        pytest.param(SOFTENED, SOFTENED, False, id="the mark stays"),
        pytest.param(SOFTENED, asked(), True, id="the mark is gone"),
        pytest.param(SOFTENED, tainting(), True, id="NoExecute again"),
        pytest.param(SOFTENED, tainting(effect="NoSchedule"), False, id="it evicts no longer"),
        pytest.param(asked(), SOFTENED, False, id="marked for the first time"),
    ],
)
def test_rule_that_was_softened_keeps_its_mark_for_as_long_as_it_evicts(before: Any, after: Any, *, more: bool) -> None:
    """Without the mark the worker's ceiling may be higher."""
    new, old = (decoded(each)[0] for each in (after, before))
    assert asks_for_more(new, old, ()) is more


def scoped(scope: str, effect: str = "NoSchedule") -> Any:
    return tainting({**node(0), "device": "gpu-0"}, effect, annotations={SCOPE: scope})


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        pytest.param(scoped("device"), scoped(HARDWARE), True, id="now for the whole hardware"),
        pytest.param(scoped(HARDWARE), scoped(HARDWARE), False, id="for the whole hardware as before"),
        pytest.param(scoped(HARDWARE), scoped("device"), False, id="no longer for it"),
        pytest.param(scoped("device"), scoped("pool"), False, id="another text"),
        pytest.param(scoped("device", "None"), scoped(HARDWARE, "None"), False, id="it does nothing"),
    ],
)
def test_scope_of_the_hardware_asks_for_more_on_a_rule_that_acts(before: Any, after: Any, *, more: bool) -> None:
    new, old = (decoded(each)[0] for each in (after, before))
    assert asks_for_more(new, old, ()) is more


# --- codes that cannot be verified (R5) ------------------------------------------------------------


@pytest.mark.parametrize("mode", PolicyMode)
@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "cannot be checked: the webhook has no key yet"),
        (SECRET, "was made for another rule, selector, taint or effect, or with another key"),
    ],
    ids=["no key", "forged"],
)
def test_code_that_is_not_known_to_be_ours_is_refused_in_every_mode(
    mode: PolicyMode, effect: str, key: bytes | None, text: str
) -> None:
    """R5."""
    made_up, plain = (tainting(node(0), effect, code=code) for code in (MADE_UP, None))
    for old in (None, plain):
        decision = ask(made_up, old, key=key, mode=mode)
        assert refusals(decision) == [text]
        assert [error.field for error in decision.errors] == [f"metadata.annotations[{CONFIRM_IMPACT}]"]
        assert decision.assumed is None
    assert ask(made_up, made_up, key=key, mode=mode).allowed  # stored already, and proved by who goes by it
    assert ask(plain, key=key, mode=mode).allowed


def test_real_code_passes_in_mode_off_without_a_word() -> None:
    """R5."""
    code = code_in(ask(tainting({})))
    decision = ask(tainting({}, code=code), mode=PolicyMode.OFF)
    assert (decision.allowed, told(decision), "impact" in decision.annotations) == (True, [], False)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"offline": True}, []), ({}, [("warn", "cannot be checked here, as there is no key")])],
    ids=["files", "a server"],
)
def test_code_is_not_refused_for_want_of_a_key_where_there_is_no_cluster(options: Any, said: Any) -> None:
    """R5: a server without a cluster says so; for files, a code is left to those who have the key."""
    decision = ask(tainting(node(0), code=MADE_UP), key=None, sight=None, **options)
    assert (decision.allowed, told(decision)) == (True, said)


def test_code_in_a_file_is_refused_where_there_is_a_key_that_did_not_make_it() -> None:
    """R5."""
    assert not ask(tainting(node(0), code=MADE_UP), sight=None, offline=True).allowed


# --- break-glass (R5, R11) -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", PolicyMode)
@pytest.mark.parametrize("key", [None, SECRET], ids=["no key", "forged"])
@pytest.mark.parametrize("sight", [Sight(SMALL), UNKNOWN], ids=["seen", "unknown"])
@pytest.mark.parametrize("updated", [False, True], ids=["created", "updated"])
def test_code_of_who_may_break_the_glass_passes_and_is_audited(
    mode: PolicyMode,
    key: bytes | None,
    sight: Sight,
    updated: bool,  # noqa: FBT001 -- a table's
) -> None:
    """R5, R11."""
    rule, old = tainting(node(0), code=MADE_UP), tainting(node(0)) if updated else None
    decision = ask(rule, old, key=key, sight=sight, impact=GLASS, mode=mode, groups=[CAREFUL])
    assert decision.allowed
    assert "warn" in {severity for severity, _ in told(decision)}
    assert decision.annotations["impact"].endswith("break-glass")
    assert not decision.turned_down, "the glass lets it pass, and not the mode"
    others = ask(rule, old, key=key, sight=sight, impact=GLASS, mode=mode)
    assert not others.allowed
    assert "break-glass" not in others.annotations.get("impact", "")


@pytest.mark.parametrize(
    ("new", "old", "sight"),
    [
        pytest.param(tainting({}), None, UNKNOWN, id="unknown impact"),
        pytest.param(tainting({}), tainting(node(0)), Sight(SMALL), id="widened"),
        pytest.param(
            tainting(node(0), annotations={EXPIRES_AT: "2026-06-01T11:00:00Z"}), None, None, id="expired, no cluster"
        ),
        pytest.param(
            tainting(node(0), "NoSchedule", annotations={EXPIRES_AT: "2026-06-01T11:00:00Z"}),
            tainting(node(0), "None"),
            Sight(SMALL),
            id="raised past its end",
        ),
    ],
)
def test_whatever_passes_by_break_glass_says_so_in_the_audit_log(new: Any, old: Any, sight: Sight | None) -> None:
    """R11."""
    assert not ask(new, old, sight=sight, impact=GLASS).allowed
    decision = ask(new, old, sight=sight, impact=GLASS, groups=[CAREFUL])
    assert decision.allowed
    assert decision.annotations["impact"].endswith("break-glass")


def test_what_only_the_mode_lets_pass_is_not_put_down_to_break_glass() -> None:
    """R11."""
    decision = ask(tainting({}), impact=GLASS, mode=PolicyMode.WARN, groups=[CAREFUL])
    assert decision.allowed
    assert "break-glass" not in decision.annotations["impact"]


# --- codes that are left behind --------------------------------------------------------------------


def test_update_that_leaves_its_code_behind_gets_a_warning() -> None:
    """R5: narrowing needs no code, and the worker does not go by one for another selector."""
    code = code_in(ask(tainting({})))
    decision = ask(tainting(node(0), code=code), tainting({}, code=code))
    assert decision.allowed
    assert told(decision) == [
        ("warn", "was made for the rule as it was: from now on the limits of the policy hold again")
    ]
    assert told(ask(tainting({}, code=code, added=NOW + timedelta(hours=1)), tainting({}, code=code))) == []
    assert told(ask(tainting(node(0), "NoSchedule", code=code), tainting({}, code=code))) == []


def test_new_code_for_a_narrowed_rule_is_to_be_had() -> None:
    """Any other text in the annotation is refused, with a code for the rule as it is."""
    settings = allowing(pods=0)
    narrow = {"driver": DRIVER, "pool": "node-1"}
    asking = ask(tainting(narrow, annotations={CONFIRM_IMPACT: "renew"}), tainting(narrow), impact=settings)
    assert ask(tainting(narrow, code=code_in(asking)), tainting(narrow), impact=settings).allowed
