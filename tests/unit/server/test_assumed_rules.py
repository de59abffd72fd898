"""What this replica knows to begin, and for how long the next reviews count it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, decoded, encoded, make_review
from tests.https.serving import post
from tests.unit.admission.guarding import fleet, node, tainting
from tests.unit.inventory.values import inventory_of
from tests.unit.server.asking import ask
from tests.unit.server.doubles import Clock
from webhook.admission.context import UNLIMITED
from webhook.admission.decision import Assumed
from webhook.api.meta import ObjectMeta
from webhook.inventory.impact import Impact, Wave
from webhook.inventory.state import Inventory, Sight
from webhook.inventory.targets import DeviceNames
from webhook.policy.decide import Judge, PolicyStore
from webhook.policy.match import KnownNames
from webhook.policy.model import ImpactLimits, ImpactSettings, Policy
from webhook.server import state as module
from webhook.server.http import Reviews
from webhook.server.settings import ReviewSettings
from webhook.server.state import KEPT_SECONDS, AssumedRules, ReviewState
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.api.rules import DeviceTaintRule


def assumed(name: str = "a", *pods: str, selector: Any = None) -> Assumed:
    rule = decoded(tainting(selector or node(0), name=name))[0]
    uids = frozenset(pods)
    waves = (Wave(0, uids, uids),) if pods else ()
    impact = Impact(devices=9, waves=waves, namespaces=frozenset({"ml"}), tolerating=frozenset({"x"}))
    return Assumed((rule,), (DeviceNames.of(rule.selector),), impact)


def names(assumed_rules: AssumedRules, inventory: Inventory | None = None) -> list[str]:
    return [rule.meta.name for rule in assumed_rules.current(inventory)]


def victims(assumed_rules: AssumedRules, seconds: float = 600) -> list[list[str]]:
    return [sorted(each.pods) for each in assumed_rules.victims(seconds)]


def test_what_our_worker_is_asked_to_do_is_no_deletion_at_once() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    assumed_rules.add(assumed("a", "u-0"), "jane")
    soft = decoded(tainting(node(1), "NoSchedule", name="b", evict=True))[0]
    assumed_rules.add(assumed("b", "u-1")._replace(rules=(soft,)), "jane")
    assert [sorted(each.pods) for each in assumed_rules.victims_at_once(600)] == [["u-0"]]
    assert victims(assumed_rules) == [["u-0"], ["u-1"]]
    clock.seconds += 601
    assert assumed_rules.victims_at_once(600) == ()


def test_rules_are_kept_without_what_may_be_of_any_size_and_act_as_before(monkeypatch: Any) -> None:
    assumed_rules = AssumedRules(Clock())
    given = [decoded(tainting(node(0), "NoSchedule", name=name, evict=True))[0] for name in "abc"]
    large = {"example.com/large": "x" * 100_000, "devicetaint.io/description": "x" * 100_000}
    given = [
        structs.replace(r, meta=structs.replace(r.meta, annotations={**r.meta.annotations, **large})) for r in given
    ]
    monkeypatch.setattr(module, "_KEPT_CHARACTERS", 2000)
    for rule in given:
        assumed_rules.add(Assumed((rule,), (), Impact()), "jane")
    kept = assumed_rules.current(None)
    assert [rule.meta.name for rule in kept] == ["b", "c"], "the oldest are forgotten"
    assert {rule.effective_effect for rule in kept} == {"NoExecute"}
    assert len(str(kept)) < 2000


def test_patch_is_remembered_once_with_all_its_rules() -> None:
    clock = Clock()
    assumed_rules, inventory = AssumedRules(clock), Inventory()
    one, two = (assumed(name, "u-0").rules[0] for name in ("p-1", "p-2"))
    whole = assumed("p-1", "u-0", "u-1").impact
    devices = (DeviceNames("d", "p"), DeviceNames("d", None, "gpu-0"))
    assumed_rules.add(assumed("p-2"), "jane")
    assumed_rules.add(Assumed((one, two), devices, whole), "jane")
    assert names(assumed_rules, inventory) == ["p-1", "p-2"], "each name once"
    assert victims(assumed_rules) == [["u-0", "u-1"]]
    assert assumed_rules.closed(600) == devices
    inventory.apply(None, one)
    assert names(assumed_rules, inventory) == ["p-2"]
    assert assumed_rules.stored(one), "so all of it counts from now on"
    clock.seconds += KEPT_SECONDS
    assert names(assumed_rules, inventory) == []
    assert victims(assumed_rules) == [["u-0", "u-1"]]
    assert set(devices) <= set(assumed_rules.closed(600))
    assert not assumed_rules.stored(two)


def test_patch_acts_at_once_if_any_of_its_rules_does() -> None:
    for effects, at_once in ((("NoSchedule", "NoExecute"), 1), (("NoSchedule",), 0)):
        assumed_rules = AssumedRules(Clock())
        rules = tuple([decoded(tainting(node(0), effect, name=f"r-{effect}", evict=True))[0] for effect in effects])
        assumed_rules.add(Assumed(rules, (), assumed("x", "u-0").impact), "jane")
        assert len(assumed_rules.victims_at_once(600)) == at_once


def test_rules_of_one_patch_do_not_drive_out_all_others() -> None:
    assumed_rules = AssumedRules(Clock())
    assumed_rules.add(assumed("a"), "jane")
    many = tuple([structs.replace(assumed("x").rules[0], meta=ObjectMeta(f"p-{number}")) for number in range(1100)])
    assumed_rules.add(Assumed(many, (), Impact()), "jane")
    assert len(names(assumed_rules)) == 1001
    assert names(assumed_rules)[0] == "a"


def test_rule_is_kept_until_the_inventory_shows_it() -> None:
    assumed_rules, inventory = AssumedRules(Clock()), Inventory()
    assert names(assumed_rules, inventory) == []
    assumed_rules.add(assumed("a"), "jane")
    assumed_rules.add(assumed("b"), "jane")
    assert names(assumed_rules, inventory) == ["a", "b"]
    inventory.apply(None, assumed("a").rules[0])
    assert names(assumed_rules, inventory) == ["b"]
    assumed_rules.stored(assumed("a").rules[0])
    inventory.apply(assumed("a").rules[0], None)
    assert names(assumed_rules, inventory) == ["b"]


def test_rule_that_looks_otherwise_is_not_it() -> None:
    """What is stored may still be the old form; the assumed one is the new form."""
    rule = assumed("a").rules[0]
    for other in (
        structs.replace(rule, selector=None),
        structs.replace(rule, taint=structs.replace(rule.taint, value="fan")),
        structs.replace(rule, taint=structs.replace(rule.taint, time_added=None)),
        assumed("b").rules[0],
    ):
        assumed_rules = AssumedRules(Clock())
        assumed_rules.add(assumed("a"), "jane")
        assert names(assumed_rules, inventory_of(other)) == ["a"]
    assumed_rules = AssumedRules(Clock())
    assumed_rules.add(assumed("a"), "jane")
    assert names(assumed_rules, inventory_of(structs.replace(rule, meta=structs.replace(rule.meta, uid="7")))) == []


def test_rule_takes_the_place_of_its_namesake() -> None:
    assumed_rules = AssumedRules(Clock())
    assumed_rules.add(assumed("a", selector=node(0)), "jane")
    assumed_rules.add(assumed("a", selector=node(1)), "jane")
    (rule,) = assumed_rules.current(None)
    assert rule.selector is not None
    assert rule.selector.pool == "node-1"


def test_rules_without_names_are_different_rules() -> None:
    assumed_rules = AssumedRules(Clock())
    for number in range(3):
        assumed_rules.add(assumed("", selector=node(number)), "jane")
    assert len(assumed_rules.current(inventory_of(assumed("").rules[0]))) == 2


def stored(assumed_rules: AssumedRules, given: Assumed) -> None:
    """The rule is allowed, and stored."""
    assumed_rules.add(given, "jane")
    assert assumed_rules.stored(given.rules[0])


def test_what_is_not_stored_counts_for_two_seconds_and_no_longer() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    assumed_rules.add(assumed("a", "p"), "jane")
    for seconds, counts in ((0, True), (1.9, True), (0.1, False)):
        clock.seconds += seconds
        assert names(assumed_rules, Inventory()) == (["a"] if counts else [])
        assert (victims(assumed_rules), len(assumed_rules.closed(600))) == (([["p"]], 1) if counts else ([], 0))


def test_victims_are_remembered_for_the_window_whatever_becomes_of_rule_and_pods() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    stored(assumed_rules, assumed("a", "p", "q"))
    clock.seconds += 300
    stored(assumed_rules, assumed("a", "r"))
    assert victims(assumed_rules) == [["p", "q"], ["r"]]
    assert names(assumed_rules, inventory_of(assumed("a").rules[0])) == []
    clock.seconds += 301
    assert victims(assumed_rules) == [["r"]]
    clock.seconds += 300
    assert victims(assumed_rules) == []


def test_nothing_but_the_victims_is_remembered() -> None:
    assumed_rules = AssumedRules(Clock())
    assumed_rules.add(assumed("a", "p"), "jane")
    assumed_rules.add(assumed("b"), "jane")
    uids = frozenset({"p"})
    assert assumed_rules.victims(600) == (Impact(waves=(Wave(0, uids, uids),), namespaces=frozenset({"ml"})),)


def test_memory_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_VICTIMS_MOST", 5)
    assumed_rules = AssumedRules(Clock())
    for number in range(4):
        stored(assumed_rules, assumed(f"a{number}", f"{number}-p", f"{number}-q"))
    assert victims(assumed_rules) == [["2-p", "2-q"], ["3-p", "3-q"]]
    assert len(assumed_rules.closed(600)) == 1
    stored(assumed_rules, assumed("large", *"abcdefg"))
    assert victims(assumed_rules) == [list("abcdefg")]
    monkeypatch.setattr(module, "_KEPT_MOST", 3)
    for number in range(9):
        assumed_rules.add(assumed(f"b{number}"), "jane")
    assert names(assumed_rules) == ["b6", "b7", "b8"]
    for number in range(9):
        stored(assumed_rules, assumed("c", selector=node(number)))
    assert {each.pool for each in assumed_rules.closed(600)} == {"node-0", "node-6", "node-7", "node-8"}


def never_stored(assumed_rules: AssumedRules, clock: Clock, requester: str, number: int = 1, **options: Any) -> None:
    """Rules are allowed that nobody stores, one after the other."""
    for _ in range(number):
        assumed_rules.add(assumed(f"forged-{clock.seconds}", "p"), requester, **options)
        clock.seconds += KEPT_SECONDS


def test_requester_of_three_rules_that_were_not_stored_does_not_count_for_ten_minutes() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    stored(assumed_rules, assumed("real", "u"))
    never_stored(assumed_rules, clock, "jane", 2)
    assumed_rules.add(assumed("a", "q"), "jane")
    assert (victims(assumed_rules), assumed_rules.not_counted()) == ([["u"], ["q"]], 0)
    clock.seconds += KEPT_SECONDS
    assert (victims(assumed_rules), assumed_rules.not_counted()) == ([["u"]], 1)
    assumed_rules.add(assumed("b", "r"), "jane")
    assert (victims(assumed_rules), names(assumed_rules)) == ([["u"]], [])
    assumed_rules.add(assumed("b", "r"), "john")
    assert victims(assumed_rules) == [["u"], ["r"]], "others do"
    clock.seconds += 599
    assumed_rules.add(assumed("c", "r"), "jane")
    assert victims(assumed_rules, 0) == []
    clock.seconds += 1
    assumed_rules.add(assumed("c", "r"), "jane")
    assert (victims(assumed_rules, 0), assumed_rules.not_counted()) == ([["r"]], 0)


def test_ten_rules_that_were_stored_make_up_for_two_that_were_not() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    for number in range(4):
        stored(assumed_rules, assumed(f"a{number}"))
        never_stored(assumed_rules, clock, "jane", 2 if number in (0, 3) else 0)
        for other in range(9 if number == 0 else 0):
            stored(assumed_rules, assumed(f"b{other}"))
    assert assumed_rules.not_counted() == 0
    never_stored(assumed_rules, clock, "jane")
    assumed_rules.current(None)
    assert assumed_rules.not_counted() == 1


def test_requesters_of_whom_nothing_was_ever_stored_are_one() -> None:
    """Else who makes up a name for each review fills the window for ever."""
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    stored(assumed_rules, assumed("real", "u"))
    for number in range(3):
        never_stored(assumed_rules, clock, f"made-up-{number}")
    assumed_rules.add(assumed("a", "p"), "made-up-3")
    assert victims(assumed_rules) == [["u"]]
    assumed_rules.add(assumed("b", "q"), "jane")
    assert victims(assumed_rules) == [["u"], ["q"]]


def patch_of(number: int) -> Assumed:
    return Assumed(tuple([assumed(f"p-{number}-{each}").rules[0] for each in range(2)]), (), Impact())


def test_of_a_patch_the_first_rule_that_is_stored_says_that_it_was() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    for number in range(5):
        assumed_rules.add(patch_of(number), "jane")
        assert assumed_rules.stored(patch_of(number).rules[0])
        clock.seconds += KEPT_SECONDS
    assert assumed_rules.not_counted() == 0


def test_patch_of_which_no_new_rule_comes_is_not_expected() -> None:
    """As when its text is set, or its evictions are to be faster: nothing would ever say that it was stored."""
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    for _ in range(5):
        assumed_rules.add(Assumed((), (), assumed("x", "u-0").impact), "jane")
        assert victims(assumed_rules) == []
        clock.seconds += KEPT_SECONDS
    assert assumed_rules.not_counted() == 0


@pytest.mark.parametrize("last_look", [True, False])
@pytest.mark.parametrize(
    "forged", [patch_of, lambda _: assumed(""), lambda number: assumed(f"a{number}")], ids=["patch", "no name", "name"]
)
def test_no_form_of_a_review_fills_the_window_for_ever(forged: Callable[[int], Any], *, last_look: bool) -> None:
    """Nobody sends them to an API server, and /validate is not asked after /mutate."""
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    for number in range(3):
        assumed_rules.add(forged(number), "jane", last_look=last_look)
        clock.seconds += KEPT_SECONDS
    assert assumed_rules.not_counted() == 1
    assumed_rules.add(forged(3), "jane", last_look=last_look)
    assert names(assumed_rules) == []


def test_what_mutate_left_ends_with_the_answer_of_validate() -> None:
    """Whether it is refused, so that nothing is added, or has got a name since."""
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    for number in range(5):
        assumed_rules.add(assumed(""), "jane", last_look=False)
        assumed_rules.add(assumed("", selector=node(1)), "john", last_look=False)
        assumed_rules.validated("jane")
        if number > 2:
            stored(assumed_rules, assumed(f"a{number}"))
        assert [rule.selector.pool for rule in assumed_rules.current(None) if rule.selector] == ["node-1"]
        assumed_rules.validated("john")
        clock.seconds += KEPT_SECONDS
    assert assumed_rules.not_counted() == 0


def test_number_of_requesters_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_REQUESTERS_MOST", 3)
    assumed_rules = AssumedRules(Clock())
    for number in range(9):
        given = assumed(f"a{number}")
        assumed_rules.add(given, f"user-{number}")
        assumed_rules.stored(given.rules[0])
    assert len(assumed_rules._requesters) == 3


def test_devices_are_remembered_for_the_window_since_a_rule_last_began_on_them() -> None:
    clock = Clock()
    assumed_rules = AssumedRules(clock)
    for number in (0, 1, 0):
        stored(assumed_rules, assumed(f"a{number}", selector=node(number)))
        clock.seconds += 300
    assert assumed_rules.closed(1000) == (DeviceNames(DRIVER, "node-1"), DeviceNames(DRIVER, "node-0"))
    assert assumed_rules.closed(400) == (DeviceNames(DRIVER, "node-0"),)
    assert assumed_rules.closed(200) == ()


class Server:
    """Reviews of rules under a limit of two pods, in a cluster of eight nodes with the rules that are `there`.

    No time passes for what is assumed, unless by a clock of the test.
    """

    def __init__(self, *there: DeviceTaintRule, **state: Any) -> None:
        judge = Judge(Policy(impact=ImpactSettings(limits=(ImpactLimits(pods=2),))))
        sight = Sight(inventory_of(*fleet(8), *there))
        state = {"assumed_rules": AssumedRules(Clock()), **state}
        self.state = ReviewState(PolicyStore(judge), sight=lambda: sight, **state)
        self._reviews = Reviews(ReviewSettings(), Metrics(version="0", resources=()), self.state)

    async def _send(self, number: int, **request: Any) -> bool:
        """Whether a rule on that node is allowed."""
        now = datetime.now(UTC)  # noqa: TID251 -- the server asks this clock
        review = make_review(tainting(node(number), name=f"rule-{number}", added=now), **request)
        _, answer = await ask(self._reviews, post(encoded(review), "/validate?timeout=30s"))
        allowed: bool = answer["response"]["allowed"]
        return allowed

    def allowed(self, numbers: Iterable[int], **request: Any) -> int:
        """How many rules pass that come at the same time, each on a node of its own."""

        async def sent() -> list[bool]:
            return await asyncio.gather(*[self._send(number, **request) for number in numbers])

        return sum(asyncio.run(sent()))


def test_rules_sent_at_the_same_time_hit_no_more_than_the_limit() -> None:
    server = Server()
    assert server.allowed(range(8)) == 2
    assert server.allowed([0]) == 1  # what is assumed already hits nobody else
    assert server.allowed([7]) == 0


def test_rule_that_is_there_is_not_expected_to_be_created_again() -> None:
    """Some operators create their rule each time and pass over AlreadyExists."""
    server = Server(assumed("rule-0").rules[0])
    assert [server.allowed([0]) for _ in range(5)] == [1] * 5
    assert server.state.assumed_rules.current(None) == ()
    assert server.allowed([1]) == 1
    assert names(server.state.assumed_rules) == ["rule-1"]


def test_dry_runs_leave_no_assumed_rule() -> None:
    server = Server()
    assert server.allowed(range(8), dryRun=True) == 8
    assert server.allowed(range(8)) == 2


def test_rules_that_waited_for_names_together_hit_no_more_than_the_limit() -> None:
    """Each was counted before the others had passed, and nobody knows more of the names than before."""

    async def look_up(*_: Any) -> bool:
        await asyncio.sleep(0)
        return False

    assert Server(look_up=look_up).allowed(range(8)) == 2


def test_refused_rule_is_not_remembered() -> None:
    server = Server()
    assert server.allowed(range(2)) == 2
    assert server.allowed(range(2, 8)) == 0
    assert sorted(pod for each in server.state.assumed_rules.victims(600) for pod in each.pods) == ["u-0", "u-1"]


def test_window_of_the_policy_says_for_how_long_victims_count() -> None:
    clock = Clock()
    server = Server(assumed_rules=AssumedRules(clock))
    assert server.allowed(range(3)) == 2
    for rule in server.state.assumed_rules.current(None):
        server.state.assumed_rules.stored(rule)
    clock.seconds += 599
    assert server.allowed([3]) == 0
    clock.seconds += 2
    assert server.allowed(range(3, 8)) == 2


def test_where_nobody_looks_at_a_cluster_nothing_is_reckoned_with() -> None:
    state = ReviewState()
    state.assumed_rules.add(assumed("a", "p"), "jane")
    now = datetime.now(UTC)  # noqa: TID251 -- any time
    context = state.context(now, UNLIMITED, KnownNames())
    assert (context.sight, context.assumed, context.victims, context.closed) == (None, (), (), ())
