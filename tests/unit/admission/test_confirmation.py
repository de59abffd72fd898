"""Confirmations: how they read, what they hold for, in what words they do not, and who needs none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW, decoded, make_patch, make_taint
from tests.tables import table
from tests.unit.admission.guarding import (
    NOWHERE,
    OTHER,
    UNKNOWN,
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
from webhook.admission.confirmation import (
    Confirmation,
    ImpactToConfirm,
    Numbers,
    as_it_will_act,
    confirms,
    digest_of,
    exceeded,
    names_of,
    overstated,
    read_text,
    text_of,
)
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta, format_time
from webhook.api.patches import SOFTENED_KEYS, decode_patch
from webhook.api.rules import CONFIRM_IMPACT, EVICT, EXPIRES_AT, SCOPE, DeviceTaintRule
from webhook.inventory.state import Sight
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, PolicyMode

OF = "abcdefgh234567yz"
LONG_AGO = NOW - timedelta(hours=2)
SINCE = NOW - timedelta(seconds=60)


def hit(devices: int = 20, claims: int = 10, pods: int = 10, namespaces: int = 2, **more: Any) -> ImpactToConfirm:
    more["protected"] = frozenset(more.get("protected", ()))
    return ImpactToConfirm(Numbers(devices, claims, pods, namespaces), **more)


def rule(*selector: Any, **fields: Any) -> Any:
    return decoded(tainting(*selector, **fields))[0]


def patch(*taints: Any, **fields: Any) -> Any:
    return decode_patch(Reader.of(make_patch(taints=list(taints) or [make_taint(effect="NoExecute")], **fields), []))


def of(judged: Any, since: Any = SINCE) -> str:
    return digest_of(judged, judged.meta.name, since)


@pytest.mark.parametrize(
    ("impact", "text"),
    [
        (hit(412, 96, 96, 7), f"v1 devices=412 claims=96 pods=96 namespaces=7 of={OF}"),
        (
            hit(1, 2, 3, 4, protected=["kube-system", "gpu-operator"], unknown=5, done=6),
            "v1 devices=1 claims=2 pods=3 namespaces=4 protected=gpu-operator,kube-system unknown=5 done=6 of=" + OF,
        ),
    ],
)
def test_text_says_what_is_hit_and_is_read_back(impact: ImpactToConfirm, text: str) -> None:
    assert text_of(impact, OF) == text
    assert read_text(text) == Confirmation(impact, OF)


def test_text_of_many_protected_namespaces_is_read_back() -> None:
    impact = hit(protected=[f"{number:063}" for number in range(1000)])
    assert read_text(text_of(impact, OF)) == Confirmation(impact, OF)


def test_fields_may_come_in_any_order_with_any_white_space() -> None:
    """As editors and YAML fold it."""
    folded = f"  v1\n of={OF}\tnamespaces=7 pods=96\n\n claims=96 devices=412 "
    assert read_text(folded) == Confirmation(hit(412, 96, 96, 7), OF)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "yes",
        "v1.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        f"v2 devices=1 claims=1 pods=1 namespaces=1 of={OF}",
        f"devices=1 claims=1 pods=1 namespaces=1 of={OF}",
        "v1 devices=1 claims=1 pods=1 namespaces=1",
        f"v1 devices=1 claims=1 pods=1 of={OF}",
        f"v1 devices=1 devices=1 claims=1 pods=1 namespaces=1 of={OF}",
        f"v1 devices=1 claims=1 pods=1 namespaces=1 of={OF} of={OF}",
        f"v1 devices=1 claims=1 pods=1 namespaces=1 more=1 of={OF}",
        f"v1 devices=-1 claims=1 pods=1 namespaces=1 of={OF}",
        f"v1 devices=1.5 claims=1 pods=1 namespaces=1 of={OF}",
        f"v1 devices=1234567890 claims=1 pods=1 namespaces=1 of={OF}",
        f"v1 devices=\N{ARABIC-INDIC DIGIT ONE} claims=1 pods=1 namespaces=1 of={OF}",
        f"v1 devices claims=1 pods=1 namespaces=1 of={OF}",
        f"v1 devices=1 claims=1 pods=1 namespaces=1 of={OF.upper()}",
        f"v1 devices=1 claims=1 pods=1 namespaces=1 of={OF[1:]}",
        f"v1 devices=1 claims=1 pods=1 namespaces=1 of={OF[:-1]}8",
        f"v1 devices=1 claims=1 pods=1 namespaces=1 of={OF} {' ' * 200_000}",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert read_text(text) is None


@pytest.mark.parametrize(
    ("now", "fault"),
    [
        (hit(22, 11, 11), None),
        (hit(23, 11, 11), "was printed for less: now 23 devices (at most 22)"),
        (hit(20, 12, 12), "was printed for less: now 12 claims (at most 11), 12 pods (at most 11)"),
        (hit(namespaces=3), None),
        (hit(namespaces=4), "was printed for less: now 4 namespaces (at most 3)"),
        (hit(unknown=1), "was printed for less: now 1 unknown (at most 0)"),
        (hit(done=1000), None),
        (hit(protected=["kube-system"]), "was printed before the protected namespace kube-system was hit"),
        (hit(0, 0, 0, 0), None),
    ],
)
def test_figures_may_grow_by_the_tolerance(now: ImpactToConfirm, fault: str | None) -> None:
    assert exceeded(hit(), now, 10) == fault


def test_protected_namespaces_that_were_confirmed_may_be_hit() -> None:
    confirmed = hit(protected=["b", "c"])
    assert exceeded(confirmed, hit(protected=["c"]), 0) is None
    assert exceeded(confirmed, hit(protected=["z", "a"]), 0) == "was printed before the protected namespace a was hit"


@pytest.mark.parametrize("percent", [0, 1, 7, 10, 15, 33, 100])
def test_tolerance_is_exact_and_rounded_up(percent: int) -> None:
    for number in range(500):
        assert Numbers(*[number] * 4).grown(percent) == (number - -number * percent // 100,) * 4


@pytest.mark.parametrize(
    ("confirmed", "fault"),
    [
        (hit(70, 60, 60, 52), None),
        (hit(71), "says more than is hit: 71 devices (today 20)"),
        (hit(pods=61, unknown=50), "says more than is hit: 61 pods (today 10)"),
        (hit(unknown=51), "says more than is hit: 51 unknown (today 0)"),
        (hit(done=50), None),
        (hit(done=51), "says more than is hit: 51 done (today 0)"),
        (hit(0, 0, 0, 0), None),
    ],
)
def test_text_that_says_far_more_than_is_hit_is_overstated(confirmed: ImpactToConfirm, fault: str | None) -> None:
    assert overstated(confirmed, hit()) == fault


def test_twice_as_much_is_not_overstated() -> None:
    assert overstated(hit(400, 200, 200), hit(200, 100, 100)) is None
    assert overstated(hit(401, 200, 200), hit(200, 100, 100)) == "says more than is hit: 401 devices (today 200)"


@table(
    "judged, digest",
    {
        "a rule": (rule(node(7), name="gpu-7", key="example.com/broken", value="fan"), "jtiyphmgafxhwbgg"),
        "of the past": (rule({}, name="all", evict=True, effect="NoSchedule", added=LONG_AGO), "iht5hyabzqrmt5fz"),
        "a patch": (patch(meta={"name": "firmware"}), "yj7lxvltrhrh25nw"),
    },
)
def test_digest_is_the_same_in_every_process(judged: Any, digest: str) -> None:
    """The vectors of docs/impact.md: what was printed yesterday must hold tomorrow, and anybody can compute it."""
    assert of(judged) == digest


OTHERS = [
    pytest.param(rule(node(7), name="gpu-8"), id="name"),
    pytest.param(rule(node(8), name="gpu-7"), id="selector"),
    pytest.param(rule({}, name="gpu-7"), id="no selector"),
    pytest.param(rule(None, name="gpu-7"), id="missing selector"),
    pytest.param(rule(node(7), name="gpu-7", key="o.example.com/k"), id="key"),
    pytest.param(rule(node(7), name="gpu-7", value="v"), id="value"),
    pytest.param(rule(node(7), "NoSchedule", name="gpu-7"), id="effect"),
    pytest.param(rule(node(7), "NoSchedule", name="gpu-7", evict=True), id="the same by our worker"),
    pytest.param(rule(node(7), name="gpu-7", evict=True), id="/evict"),
    pytest.param(rule(node(7), name="gpu-7", annotations={SCOPE: "hardware"}), id="/scope"),
    pytest.param(rule(node(7), name="gpu-7", added=LONG_AGO), id="a time that is past"),
    pytest.param(patch(meta={"name": "gpu-7"}), id="a patch of that name"),
]


@pytest.mark.parametrize("other", OTHERS)
def test_digest_is_of_one_object(other: Any) -> None:
    assert of(other) != of(rule(node(7), name="gpu-7"))


def test_all_of_them_differ() -> None:
    assert len({of(each.values[0]) for each in OTHERS}) == len(OTHERS)


@pytest.mark.parametrize(
    "same",
    [
        rule(node(7), name="gpu-7", added=SINCE),
        rule(node(7), name="gpu-7", added=NOW + timedelta(hours=1)),
        rule(node(7), name="gpu-7", annotations={"devicetaint.io/owner": "jane", EVICT: "false"}),
        rule(node(7), name="gpu-7", version="v1beta2"),
    ],
    ids=["a minute ago", "later", "what does nothing", "version"],
)
def test_digest_is_the_same_for_what_acts_the_same(same: Any) -> None:
    assert of(same) == of(rule(node(7), name="gpu-7"))


def test_texts_that_no_server_stores_have_a_digest_all_the_same() -> None:
    assert of(rule({"driver": "\ud800", "later": {"b": 1, "a": [None]}}, name="\N{SNOWMAN}"))


def test_taints_of_a_patch_count_in_any_order_and_only_those_that_act() -> None:
    one, two, still = (
        make_taint(effect=effect, key=f"{name}.example.com/k")
        for name, effect in (("a", "NoExecute"), ("b", "NoSchedule"), ("c", "None"))
    )
    assert of(patch(one, two)) == of(patch(two, one, still))
    assert of(patch(one, two)) != of(patch(one))
    soft = patch(two, meta={"name": "firmware", "annotations": {SOFTENED_KEYS: "b.example.com/k"}})
    assert of(soft) != of(structs.replace(soft, meta=ObjectMeta(name="firmware")))


@pytest.mark.parametrize(
    ("name", "prefix", "generated", "names"),
    [
        ("gpu-7", "", True, ["gpu-7"]),
        ("gpu-x7x2p", "gpu-", True, ["gpu-*", "gpu-x7x2p"]),
        ("gpu-x7x2p", "gpu-", False, ["gpu-x7x2p"]),
        ("", "gpu-", True, ["gpu-*"]),
        ("gpu-7", "gpu-", True, ["gpu-7"]),
        ("gpu-x7x2a", "gpu-", True, ["gpu-x7x2a"]),
        ("gpu-x7x2pp", "gpu-", True, ["gpu-x7x2pp"]),
        ("disk-x7x2p", "gpu-", True, ["disk-x7x2p"]),
        (f"{'g' * 58}x7x2p", "g" * 70, True, [f"{'g' * 58}*", f"{'g' * 58}x7x2p"]),
        ("", "", True, []),
    ],
)
def test_names_that_a_server_makes_are_confirmed_by_their_prefix(
    name: str, prefix: str, *, generated: bool, names: list[str]
) -> None:
    assert [*names_of(ObjectMeta(name=name, generate_name=prefix), generated=generated)] == names


def test_object_that_does_nothing_yet_is_confirmed_as_it_will_act() -> None:
    forms = as_it_will_act(rule(node(7), "None"))
    effects = [(each.taint.effect, each.effective_effect) for each in forms if isinstance(each, DeviceTaintRule)]
    assert effects == [
        ("None", "None"),
        ("NoExecute", "NoExecute"),
        ("NoSchedule", "NoSchedule"),
        ("NoSchedule", "NoExecute"),
    ]
    acting = rule(node(7), "NoSchedule")
    assert as_it_will_act(acting) == (acting,)
    still = patch(make_taint(effect="None"))
    assert [each.taints[0].effect for each in as_it_will_act(still)] == ["None", "NoExecute"]  # type: ignore[union-attr]


@pytest.mark.parametrize("since", [None, SINCE])
def test_stored_object_is_confirmed_whenever_it_was(since: Any) -> None:
    stored = rule(node(7), added=LONG_AGO)
    assert confirms(of(stored, since), stored)
    assert not confirms(of(rule(node(8), added=LONG_AGO), since), stored)
    assert not confirms(of(rule(node(7), added=LONG_AGO - timedelta(seconds=1))), stored)


def test_stored_patch_is_confirmed_at_any_moment_between_its_times() -> None:
    times = [LONG_AGO + timedelta(minutes=each) for each in range(3)]
    taints = [
        make_taint(effect="NoExecute", key=f"k{at}.example.com/k", time_added=format_time(time))
        for at, time in enumerate(times)
    ]
    stored = patch(*taints)
    moments = [None, *[time + timedelta(seconds=1) for time in times], times[0]]
    assert all(confirms(of(stored, moment), stored) for moment in moments)


def test_name_that_a_server_made_is_confirmed_by_its_prefix() -> None:
    made = rule(node(7), name="gpu-x7x2p", generate_name="gpu-")
    assert confirms(digest_of(made, "gpu-*", SINCE), made)
    other = rule(node(7), name="gpu-extra", generate_name="gpu-")
    assert not confirms(digest_of(other, "gpu-*", SINCE), other)


# --- who passes the guard, and how a refusal is confirmed -----------------------------------------


AN_HOUR_AGO = "2026-06-01T11:00:00Z"
CAREFUL = "oncall"


@pytest.mark.parametrize(
    ("seconds", "reasons"), [(-61, ["backdated"]), (-60, []), (0, []), (3600, [])], ids=["past", "skew", "now", "later"]
)
@pytest.mark.parametrize("selector", [node(0), NOWHERE], ids=["hits a pod", "hits nobody"])
def test_rule_that_begins_to_evict_must_not_lie_back(seconds: int, reasons: list[str], selector: Any) -> None:
    added = NOW + timedelta(seconds=seconds)
    assert over(ask(tainting(selector, added=added))) == reasons
    assert over(ask(tainting(selector, "None", added=added, evict=True))) == reasons
    assert over(ask(tainting(selector, "NoSchedule", added=added))) == []


@pytest.mark.parametrize(
    ("expires", "effect", "was", "refused"),
    [
        (AN_HOUR_AGO, "NoExecute", None, True),
        (AN_HOUR_AGO, "NoSchedule", None, True),
        (AN_HOUR_AGO, "None", None, False),
        ("2026-06-01T12:00:00Z", "NoExecute", None, True),
        ("2026-06-01T12:00:01Z", "NoExecute", None, False),
        (AN_HOUR_AGO, "NoExecute", "None", True),
        (AN_HOUR_AGO, "NoExecute", "NoSchedule", True),
        (AN_HOUR_AGO, "NoSchedule", "None", True),
        (AN_HOUR_AGO, "NoExecute", "NoExecute", False),
        (AN_HOUR_AGO, "NoSchedule", "NoExecute", False),
        (AN_HOUR_AGO, "None", "NoExecute", False),
    ],
)
@pytest.mark.parametrize("sight", [Sight(inventory_of(*fleet())), None, UNKNOWN], ids=["seen", "no cluster", "unknown"])
def test_rule_past_its_end_must_not_begin_to_act(
    expires: str, effect: str, was: str | None, *, refused: bool, sight: Any
) -> None:
    rule = tainting(node(0), effect, annotations={EXPIRES_AT: expires})
    old = None if was is None else tainting(node(0), was)
    decision = ask(rule, old, sight=sight, impact=ImpactSettings(unknown_impact=Action.WARN))
    text = f"was at {expires}: the rule has expired; to use it again, change or remove this annotation"
    assert refusals(decision) == ([text] if refused else [])
    assert [error.field for error in decision.errors] == [f"metadata.annotations[{EXPIRES_AT}]"] * refused


def test_mode_warn_tells_and_lets_pass() -> None:
    decision = ask(tainting({}), mode=PolicyMode.WARN)
    assert decision.allowed
    (warning,) = told(decision)
    assert warning[1].startswith("hits 8 devices, 4 pods in 1 namespace: an empty selector")
    assert over(decision) == ["empty-selector"]
    assert decision.assumed is not None


@pytest.mark.parametrize("sight", [UNKNOWN, Sight(inventory_of(*fleet()))])
def test_mode_off_is_silent(sight: Sight) -> None:
    decision = ask(
        tainting({}, added=LONG_AGO, annotations={EXPIRES_AT: AN_HOUR_AGO}), sight=sight, mode=PolicyMode.OFF
    )
    assert (told(decision), "impact" in decision.annotations) == ([], False)


def test_glass_that_nobody_had_to_break_is_whole() -> None:
    settings = ImpactSettings(break_glass_groups=(CAREFUL,))
    assert "break-glass" not in ask(tainting(node(0)), impact=settings, groups=[CAREFUL]).annotations["impact"]


def test_confirmed_rule_passes_with_its_figures_and_is_audited() -> None:
    text = text_in(ask(tainting({})))
    decision = ask(tainting({}, text=text), user="john")
    assert decision.allowed
    assert told(decision) == [("warn", "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once")]
    assert decision.annotations["impact"].endswith(" over=empty-selector confirmed")
    assert decision.assumed is not None


def test_text_that_does_not_hold_is_told_beside_the_refusal() -> None:
    decision = ask(tainting({}, text=text_in(ask(tainting(None)))))
    assert [error.field for error in decision.errors] == [
        "spec.deviceSelector",
        f"metadata.annotations[{CONFIRM_IMPACT}]",
    ]
    assert refusals(decision)[1].startswith(f"{OTHER}; leave the annotation out, or set annotation ")
    assert ask(tainting({}, text=text_in(decision))).allowed


def test_no_text_is_none() -> None:
    assert not ask(tainting({}, text="")).allowed
    assert ask(tainting(node(0), text="")).allowed


def test_text_that_is_not_needed_any_more_does_no_harm() -> None:
    text = text_in(ask(tainting({})))
    assert ask(tainting({}, text=text), tainting({}, "NoExecute")).allowed


def test_time_added_is_confirmed_only_where_it_was_set_back() -> None:
    now = text_in(ask(tainting({})))
    assert ask(tainting({}, text=now, added=NOW - timedelta(seconds=30))).allowed
    assert not ask(tainting({}, text=now, added=LONG_AGO)).allowed
    back = text_in(ask(tainting({}, added=LONG_AGO)))
    assert ask(tainting({}, text=back, added=LONG_AGO)).allowed
    assert not ask(tainting({}, text=back, added=LONG_AGO - timedelta(seconds=1))).allowed
    assert not ask(tainting({}, text=back)).allowed


def test_rule_that_evicts_already_is_confirmed_anew_with_its_time_or_without() -> None:
    """A second hundred pods take a new text, and by then the time is past."""
    least = ImpactSettings(limits=(ImpactLimits(pods=0),))
    old, later = tainting({}), NOW + timedelta(hours=1)
    text = text_in(ask(tainting({}, text="renew"), old, impact=least, now=later))
    assert ask(tainting({}, text=text), old, impact=least, now=later).allowed
    first = text_in(ask(tainting({}), impact=least))
    assert ask(tainting({}, text=first), old, impact=least, now=later).allowed


def test_made_up_names_share_a_text() -> None:
    """The API server makes up another name each time, and tells it."""
    text = text_in(ask(tainting({}, name="gpu-x7x2p", generate_name="gpu-")))
    assert ask(tainting({}, name="gpu-b4kq9", generate_name="gpu-", text=text)).allowed
    assert ask(tainting({}, name="", generate_name="gpu-", text=text)).allowed
    assert not ask(tainting({}, name="gpu-b4kq9", text=text)).allowed
    assert not ask(tainting({}, name="disk-b4kq9", generate_name="gpu-", text=text)).allowed
    assert not ask(tainting({}, name="gpu-b4kq9", generate_name="gpu", text=text)).allowed


def test_prefix_confirms_no_name_that_somebody_chose() -> None:
    """G02: a text for `generateName: g` is not for every rule whose name begins with g."""
    text = text_in(ask(tainting({}, name="gx7x2p", generate_name="g")))
    assert not ask(tainting({}, name="gpus-of-everybody", generate_name="g", text=text)).allowed
    made = tainting({}, name="gx7x2p", generate_name="g", effect="NoSchedule")
    raised = tainting({}, name="gx7x2p", generate_name="g", text=text)
    assert not ask(raised, made).allowed, "an update has a name"
    assert ask(tainting({}, name="gx7x2p", generate_name="g", text=text_in(ask(raised, made))), made).allowed
