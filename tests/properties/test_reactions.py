"""Laws of reactions, over random histories: taints come, go and flap, slices vanish, drivers restart, policies change.

Each history is played with a pass after every event. The taints that are published are known from the history itself,
without what the rules say of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patches.reacting import DRIVER, NOW, Cluster, make_reaction, make_slice, stored
from webhook.api.slices import SliceTaint
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pools
from webhook.inventory.targets import DeviceId
from webhook.patches.reactions import LEAST_QUIET_SECONDS, react
from webhook.policy.limits import may_come_of_reactions
from webhook.policy.model import Share

if TYPE_CHECKING:
    from datetime import datetime

    from hypothesis.strategies import SearchStrategy

    from webhook.patches.reactions import ReactionPass
    from webhook.policy.model import Reaction

POOLS: Final = ("p", "q/r")
DEVICES: Final = ("d0", "d1", "d2")
KEYS: Final = ("k", "l")
WAITS: Final = (0.0, 1.0, 30.0, 59.5, 60.0, 61.0, 119.0, 120.0, 300.0, 4000.0)
FAR: Final = 10.0**7
AHEAD: Final = timedelta(days=1000)
"""Of the timeAdded that drivers write: passes go by what they have seen themselves."""

K: Final = make_reaction(name="k", key="k", for_seconds=60.0)
POLICIES: Final[tuple[tuple[Reaction, ...], ...]] = (
    (K,),
    (make_reaction(name="k", key="k", for_seconds=60.0, max_devices=1),),
    (make_reaction(name="k", key="*", for_seconds=120.0, max_devices=Share(34.0), evict=True),),
    (
        make_reaction(name="k", key="k", for_seconds=60.0, max_devices=3),
        make_reaction(name="l", key="l", for_seconds=120.0, max_devices=2, evict=True),
    ),
    (make_reaction(name="now", key="*", for_seconds=0.0, effect="NoExecute", max_devices=2),),
    (),
)


class Event(NamedTuple):
    """What happens after a while: `appear`, `clear`, `flap`, `vanish`, `half`, `restart`, `policy`, or nothing."""

    wait: float
    kind: str
    pool: str
    device: str
    key: str
    policy: int


events: SearchStrategy[Event] = st.builds(
    Event,
    st.sampled_from(WAITS),
    st.sampled_from(("appear", "appear", "clear", "flap", "vanish", "half", "restart", "policy", "nothing")),
    st.sampled_from(POOLS),
    st.sampled_from((*DEVICES, "unknown")),
    st.sampled_from(KEYS),
    st.integers(0, len(POLICIES) - 1),
)
histories: SearchStrategy[list[Event]] = st.lists(events, min_size=1, max_size=25)
policies: SearchStrategy[tuple[Reaction, ...]] = st.sampled_from(POLICIES)


class Step(NamedTuple):
    """The world around one pass, and what came of it."""

    now: datetime
    before: frozenset[str]
    after: frozenset[str]
    reactions: tuple[Reaction, ...]
    changed: bool
    """Whether the policy has changed."""
    complete: frozenset[str]
    shown: frozenset[str]
    """Pools that are published at all."""
    last_there: dict[tuple[str, str], datetime]
    """When a taint was last seen there, by pool and device."""
    result: ReactionPass


class World:
    """A cluster whose drivers do what the events say."""

    def __init__(self, reactions: tuple[Reaction, ...]) -> None:
        self.cluster = Cluster(reactions=reactions)
        self.seconds = 0.0
        self.taints: dict[tuple[str, str, str], datetime] = {}
        self.slices = dict.fromkeys(POOLS, 1)
        """How many slices each pool says that it has; 0 is none at all."""
        self.last_there: dict[tuple[str, str], datetime] = {}
        self.seen: dict[tuple[str, str, str], datetime] = {}
        """The first of the looks at which each taint was published without a gap."""
        for pool in POOLS:
            self._publish(pool)

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def do(self, event: Event) -> bool:
        """The event after its wait; whether the policy has changed."""
        self.seconds += event.wait
        place = event.pool, event.device, event.key
        if event.kind == "appear":
            self.taints.setdefault(place, self.now.replace(microsecond=0) + AHEAD)
        elif event.kind == "clear":
            self.taints.pop(place, None)
        elif event.kind == "flap":
            self.taints[place] = self.now.replace(microsecond=0) + AHEAD
        elif event.kind in {"vanish", "half"}:
            self.slices[event.pool] = 0 if event.kind == "vanish" else 2
        elif event.kind == "restart":
            self.slices[event.pool] = 1
        changed = event.kind == "policy" and POLICIES[event.policy] != self.cluster.reactions
        if changed:
            self.cluster.reactions = POLICIES[event.policy]
        self._publish(event.pool)
        return changed

    def _publish(self, pool: str) -> None:
        name = pool.replace("/", "-")
        self.cluster.slices.pop(name, None)
        if self.slices[pool]:
            beside = tuple(
                [
                    SliceTaint(device, DeviceTaint(key, "", "None", added))
                    for (of, device, key), added in sorted(self.taints.items())
                    if of == pool
                ]
            )
            devices = dict.fromkeys(DEVICES, ())
            self.cluster.publish(make_slice(devices, pool, slices=self.slices[pool], name=name, beside=beside))

    def look_around(self) -> None:
        """Takes down which devices have taints that are published now."""
        published = [place for place in self.taints if self.slices[place[0]]]
        self.seen = {place: self.seen.get(place, self.now) for place in published}
        for pool, device, _ in published:
            self.last_there[pool, device] = self.now

    @property
    def complete(self) -> frozenset[str]:
        return frozenset(pool for pool, slices in self.slices.items() if slices == 1)

    @property
    def shown(self) -> frozenset[str]:
        return frozenset(pool for pool, slices in self.slices.items() if slices)


def played(history: list[Event], reactions: tuple[Reaction, ...]) -> list[Step]:
    world = World(reactions)
    steps = []
    for event in history:
        changed = world.do(event)
        world.look_around()
        before = frozenset(world.cluster.closed)
        result = world.cluster.go(world.seconds)
        now_closed = frozenset(world.cluster.closed)
        steps.append(
            Step(
                *(world.now, before, now_closed, world.cluster.reactions, changed),
                *(world.complete, world.shown, dict(world.last_there), result),
            )
        )
    return steps


def split(name: str) -> tuple[str, str]:
    pool, _, device = name.rpartition("/")
    return pool, device


@given(histories, policies)
def test_no_device_has_a_rule_without_a_taint_that_lasted(
    history: list[Event], reactions: tuple[Reaction, ...]
) -> None:
    """Time counts from the first pass that saw the taint: a gap between two passes is not noticed."""
    world = World(reactions)
    for event in history:
        world.do(event)
        world.look_around()
        before = set(world.cluster.closed)
        world.cluster.go(world.seconds)
        for name in world.cluster.closed - before:
            pool, device = split(name)
            assert device in DEVICES
            assert world.slices[pool]
            assert any(
                (pool, device, key) in world.seen
                and (world.now - world.seen[pool, device, key]).total_seconds() >= each.for_seconds
                for each in world.cluster.reactions
                for key in KEYS
                if each.key in {key, "*"}
            )


@given(histories, policies)
def test_never_more_devices_than_the_limits_allow(history: list[Event], reactions: tuple[Reaction, ...]) -> None:
    for step in played(history, reactions):
        limits = [outcome.limit for outcome in step.result.outcomes]
        if step.after - step.before and None not in limits:
            kept = {name for name in step.before if split(name)[0] in step.shown}
            assert len(kept | step.after) <= max(limit for limit in limits if limit is not None)


@given(histories, policies)
def test_a_rule_whose_source_is_not_published_in_full_stays(
    history: list[Event], reactions: tuple[Reaction, ...]
) -> None:
    for step in played(history, reactions):
        if not step.changed:
            gone = step.before - step.after
            assert {split(name)[0] for name in gone} & step.shown <= step.complete


@given(histories, policies)
def test_no_rule_goes_before_its_taints_have_been_gone_for_a_while(
    history: list[Event], reactions: tuple[Reaction, ...]
) -> None:
    """Unless the policy changes, the pool is gone, or a taint of the device is new and has to last first."""
    for step in played(history, reactions):
        if step.changed:
            continue
        for name in step.before - step.after:
            if split(name)[0] not in step.shown:
                continue  # a device that no slice shows has no rule
            away = (step.now - step.last_there[split(name)]).total_seconds()
            least = min([LEAST_QUIET_SECONDS, *[each.for_seconds for each in step.reactions if each.for_seconds]])
            assert away >= least or away == 0.0


@given(histories, policies, st.randoms(use_true_random=False))
def test_order_of_objects_is_irrelevant(history: list[Event], reactions: tuple[Reaction, ...], random: object) -> None:
    world = World(reactions)
    for event in history:
        world.do(event)
        expected = world.cluster.look(world.seconds)
        slices, rules = list(world.cluster.slices.values()), list(world.cluster.rules.values())
        policy = list(world.cluster.reactions)
        for each in (slices, rules, policy):
            random.shuffle(each)  # type: ignore[attr-defined]
        pools = Pools()
        for value in slices:
            pools.apply(None, value)
        found = react(pools, rules, policy, world.now, world.cluster.sights)
        assert (found.rules, found.write, found.delete) == (expected.rules, expected.write, expected.delete)
        assert found.next_seconds == expected.next_seconds
        world.cluster.carry_out(expected)


def settle(cluster: Cluster, seconds: float) -> None:
    """Passes until nothing is left to do: a rule that is gone may make room for another one."""
    for _ in range(2 * len(POOLS) * len(DEVICES)):
        result = cluster.go(seconds)
        if not result.write and not result.delete:
            return
    raise AssertionError("passes do not come to an end")


@given(histories, st.sampled_from([each for each in POLICIES if len(each) == 1]), st.data())
def test_a_restart_between_two_writes_changes_nothing(
    history: list[Event], reactions: tuple[Reaction, ...], data: st.DataObject
) -> None:
    """One leader carries out a part of its pass, and the next one begins from what is stored."""
    one, two = World(reactions), World(reactions)
    for event in history:
        if event.kind == "policy":
            continue
        one.do(event)
        two.do(event)
        settle(one.cluster, one.seconds)
        result = two.cluster.look(two.seconds)
        for name in data.draw(st.lists(st.sampled_from(result.delete), unique=True)) if result.delete else ():
            del two.cluster.rules[name]
        for write in data.draw(st.lists(st.sampled_from(result.write), unique_by=id)) if result.write else ():
            two.cluster.rules[write.rule.name] = stored(write.rule, write.taint)
        settle(two.cluster, two.seconds)
        assert one.cluster.rules == two.cluster.rules


@given(histories, policies, st.floats(0.0, 0.999))  # times have microseconds: nearer to 1 they are the same
def test_nothing_happens_before_the_time_of_the_next_pass(
    history: list[Event], reactions: tuple[Reaction, ...], part: float
) -> None:
    world = World(reactions)
    for event in history:
        world.do(event)
        settle(world.cluster, world.seconds)
        until = world.cluster.look(world.seconds).next_seconds
        later = world.cluster.look(world.seconds + (FAR if until is None else part * until))
        assert (later.write, later.delete) == ((), ())
        if until is not None:
            due = world.cluster.look(world.seconds + until)
            assert until > 0
            held_back = any(outcome.held_back for outcome in due.outcomes)
            assert due.write or due.delete or held_back or due.next_seconds != 0.0


@given(histories, policies)
def test_every_rule_selects_one_device_and_may_come_of_the_policy(
    history: list[Event], reactions: tuple[Reaction, ...]
) -> None:
    world = World(reactions)
    for event in history:
        world.do(event)
        result = world.cluster.go(world.seconds)
        for rule in (write.rule for write in result.write):
            assert may_come_of_reactions(stored(rule), world.cluster.reactions)
            assert rule.selector.driver == DRIVER
            assert DeviceId(DRIVER, *split(f"{rule.selector.pool}/{rule.selector.device}")) == rule.address
