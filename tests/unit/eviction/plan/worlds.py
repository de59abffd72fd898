"""Random small worlds for the oracle of the pass: what the caches show, a ledger, budgets and a moment.

Everything follows from the seed. Each world has its own inclinations, so that some are crowded with holds, gangs or
full limits, and in others pods can go; in most worlds only limits of one kind are full.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta

from tests.builders import NOW
from tests.unit.eviction.plan.inventories import NAMESPACES, PATCH, Dice, Mood, random_inventory
from tests.unit.eviction.plan.ledgers import random_ledger
from webhook.api.meta import ObjectMeta
from webhook.api.pods import DisruptionBudget, Pod
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Evictions
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory
from webhook.inventory.targets import EvictionScope
from webhook.policy.model import EvictionProfile, EvictionWindow, Pause, Share

_OPEN = EvictionWindow("0 10 * * *", 4 * 3600.0)
_CLOSED = EvictionWindow("0 22 * * *", 8 * 3600.0)
_ALSO_CLOSED = EvictionWindow("30 15 * * *", 3600.0)


@dataclass(frozen=True)
class Budgets:
    """Disruption budgets that select pods by uid."""

    by_pod: Mapping[str, tuple[DisruptionBudget, ...]]
    known: Mapping[tuple[str, str], DisruptionBudget]

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        return self.by_pod.get(pod.meta.uid, ())

    def find(self, namespace: str, name: str) -> DisruptionBudget | None:
        return self.known.get((namespace, name))


@dataclass(frozen=True, kw_only=True)
class World:
    """What `plan` and `take` are given."""

    seed: int
    view: View
    ledger: Ledger
    budgets: Budgets
    profiles: tuple[Profile, ...]
    pause: Pause | None
    moment: Moment


def random_world(seed: int) -> World:
    """The world of a seed."""
    dice = Dice(seed)
    mood = Mood(dice)
    moment = Moment(NOW, 1000.0)
    inventory = random_inventory(dice, mood)
    profiles = tuple([Profile(position, _settings(dice, mood)) for position in range(2)])
    budgets = _budgets(dice, mood, inventory)
    view = _view(dice, mood, inventory, profiles)
    ledger = random_ledger(dice, mood, view, budgets, profiles, moment)
    pause = None
    if dice.often(0.1):
        pause = Pause(NOW + timedelta(seconds=dice.choice((-60, 0, 600, 600, 600))))
    return World(seed=seed, view=view, ledger=ledger, budgets=budgets, profiles=profiles, pause=pause, moment=moment)


def _view(dice: Dice, mood: Mood, inventory: Inventory, profiles: tuple[Profile, ...]) -> View:
    evictions = Evictions(inventory, EvictionScope(Evictor.OURS, asked=True), lambda _: NOW - timedelta(hours=2))
    evictions.everything()
    hit = {}
    for key, pod in sorted(inventory.pods.items()):
        eviction = evictions.eviction_of(pod)
        if eviction is not None:
            hit[key] = eviction
    first = {pod.meta.uid: dice.often(0.6) for _, pod in sorted(inventory.pods.items())}
    holds = {namespace: "release week" for namespace in NAMESPACES if dice.often(mood.held / 2)}
    groups = {}
    for _, each in sorted(inventory.rules.items()):
        groups[each.meta.uid] = PATCH if each.origin.patch and dice.often(0.7) else each.meta.uid
        if not each.origin.patch and dice.often(0.2):
            groups[each.meta.uid] = "uid-rule-0"  # it was added for the whole hardware of that rule
    ceilings = {group: dice.randint(0, 5) for group in sorted(set(groups.values())) if dice.often(0.25)}
    protected = frozenset(["web"]) if dice.often(0.1) else frozenset[str]()

    def exceeded(group: str, pods: int, namespaces: AbstractSet[str], _: AbstractSet[str]) -> str:
        if pods > ceilings.get(group, 1000):
            return f"{group} hits {pods} pods"
        hit = sorted(protected & namespaces)
        return f"{group} hits {hit[0]}" if hit else ""

    return View(
        inventory=inventory,
        evictions=evictions,
        hit=hit,
        profile_of=lambda pod: profiles[not first[pod.meta.uid]],
        hold_of=holds.get,
        group_of=lambda uid: groups[uid],
        exceeded=exceeded,
    )


def _settings(dice: Dice, mood: Mood) -> EvictionProfile:
    windows = dice.choice(((), (_OPEN,), (_CLOSED,), (_CLOSED, _ALSO_CLOSED), (_CLOSED, _OPEN)))
    calm = dice.often(mood.calm)
    rates, minutes, namespaces, owners, overall = [
        mood.focus in (kind, "") for kind in ("rate", "minute", "namespace", "owner", "overall")
    ]
    return EvictionProfile(
        rate=dice.choice((10.0, 0.1, 0.5)),
        burst=dice.choice((1, 1, 2, 10)) if rates else 100,
        max_per_minute=dice.choice((None, 1, 2, 3, 4)) if minutes else None,
        per_namespace=dice.choice((1, 1, 2, 3)) if namespaces else None,
        per_owner_unavailable=dice.choice((1, 2, 2, 3, 3, Share(40.0), Share(75.0), 0)) if owners else None,
        overall=dice.choice((None, 1, 2, 3)) if overall else None,
        deadline_seconds=dice.choice((600.0, 30.0, 30.0, 0.0)),
        delete_after_deadline=dice.often(0.5),
        grace_seconds=dice.choice((0.0, 0.0, 45.0)),
        max_hold_seconds=dice.choice((86_400.0, 86_400.0, 60.0, 0.0)),
        evict_daemon_sets=dice.often(0.3),
        stuck_after_seconds=dice.choice((300.0, 30.0)),
        gang_by_owner=dice.often(0.2),
        gang_window_seconds=dice.choice((60.0, 40.0, 20.0, 20.0, 0.0, 0.0, 0.0, 1000.0)),
        skips=dice.often(mood.exempt / 2),
        windows=() if calm else windows,
        wait_for_completion_seconds=0.0 if calm else dice.choice((0.0, 75.0, 5400.0)),
    )


def _budgets(dice: Dice, mood: Mood, inventory: Inventory) -> Budgets:
    share = 0.9 if mood.focus == "budget" else dice.some(0.0, 0.3) if not mood.focus else 0.05
    made = {}
    for namespace in NAMESPACES:
        for name in ("first", "second"):
            made[namespace, name] = DisruptionBudget(
                ObjectMeta(name=name, namespace=namespace),
                allowed=dice.choice((None, 0, 1, 2, 2, 3, 10, 10)),
                healthy=dice.choice((1, 3)),
                desired=dice.choice((0, 2)),
                always=dice.often(0.1),
            )
    by_pod = {}
    for _, pod in sorted(inventory.pods.items()):
        selecting = []
        if dice.often(share):
            selecting = ["first", "second"] if dice.often(0.1) else [dice.choice(("first", "first", "first", "second"))]
        by_pod[pod.meta.uid] = tuple([made[pod.meta.namespace, name] for name in selecting])
    known = {key: budget for key, budget in made.items() if dice.often(0.93)}  # the others are gone
    return Budgets(by_pod, known)
