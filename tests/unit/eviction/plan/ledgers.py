"""Random ledgers for a random world: what cannot be seen in the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tests.unit.eviction.plan.inventories import Dice, Mood
from webhook.api.pods import Pod
from webhook.eviction.ledger import BudgetAnswers, Failure, Ledger, Moment, Round, Taken, View
from webhook.eviction.ports import BudgetLimit, PodBudgets
from webhook.eviction.profiles import Profile, owner_of
from webhook.flowcontrol.rates import Rate, TokenBucket
from webhook.inventory.state import claim_keys
from webhook.policy.model import EvictionProfile

_WHOLE, _UNITS = 1, (2, 3)
"""Numbers of units that were taken."""


def random_ledger(
    dice: Dice, mood: Mood, view: View, budgets: PodBudgets, profiles: tuple[Profile, ...], moment: Moment
) -> Ledger:
    """What the worker remembers of pods, owners, budgets, rates and drivers of this world."""
    drivers = ("gpu.example.com", "nic.example.com")
    known = _taken(dice, view)
    ledger = Ledger(
        failures=_failures(dice, view, moment),
        rounds=_rounds(dice, view),
        unreplaced=_unreplaced(dice, view),
        budgets=_asked(dice, view, budgets, moment),
        buckets=_buckets(dice, view, profiles, moment) if mood.focus in ("rate", "") else {},
        departures=_departures(dice, profiles, moment),
        tripped=frozenset(drivers) if dice.often(0.06) else frozenset([each for each in drivers if dice.often(0.08)]),
    )
    for uid, (taken, granted) in known.items():
        ledger.take(uid, taken)
        if granted:
            ledger.grant(uid)
        pod = view.inventory.pods.get(taken.key)
        if pod is None or pod.deleting:
            ledger.begun.add(taken.unit)  # the watch was faster than the answer
    return ledger


def _pods(view: View) -> list[Pod]:
    return [pod for _, pod in sorted(view.inventory.pods.items())]


def _links(view: View, pod: Pod) -> list[str]:
    """Places that the pod may have been taken in."""
    gang = view.gang_of(pod, view.profile_of(pod))
    return [*([gang] if gang else []), *[key for key in claim_keys(pod) if view.inventory.is_shared(key)], pod.meta.uid]


def _taken(dice: Dice, view: View) -> dict[str, tuple[Taken, bool]]:
    """Pods that were taken, and whether they were evicted."""
    share, whole = dice.some(0.0, 0.0, 0.05, 0.2), ""
    found = dict[str, tuple[Taken, bool]]()
    if dice.often(0.25):  # much of one unit
        whole = dice.choice(sorted({link for pod in _pods(view) for link in _links(view, pod)[:-1]}) or [""])
    for pod in _pods(view):
        of_whole = whole in _links(view, pod) and dice.often(0.6)
        if not of_whole and not dice.often(min(3 * share, 0.8) if pod.deleting else share):
            continue
        links = _links(view, pod)
        gang = view.gang_of(pod, view.profile_of(pod))
        place = whole if of_whole else links[0] if dice.often(0.7) else dice.choice(links)
        key, namespace = f"{pod.meta.namespace}/{pod.meta.name}", pod.meta.namespace
        owner = owner_of(pod)
        rules = view.hit[key].rules if key in view.hit else ()
        unit = _WHOLE if of_whole else dice.choice(_UNITS)
        taken = Taken(key, namespace, place, unit, owner, gang or place, rules)
        found[pod.meta.uid] = taken, dice.often(0.6)
    rules = dice.choice([eviction.rules for _, eviction in sorted(view.hit.items())] or [()])
    if dice.often(0.15):  # its pod is gone
        place, granted = "uid-gone", dice.often(0.5)
        found[place] = Taken("ml/gone", "ml", place, 0, "ml/uid-db", place, rules), granted
    if dice.often(0.15):  # so is this one, which was in a gang
        place, granted = "gang ml/x ", dice.often(0.7)
        found["uid-left"] = Taken("ml/left", "ml", place, _WHOLE, "", place, rules), granted
    return found


def _failures(dice: Dice, view: View, moment: Moment) -> dict[str, Failure]:
    share = dice.some(0.0, 0.1, 0.4)
    found = {}
    for pod in _pods(view):
        if dice.often(share):
            refusals = dice.choice((0, 1, 1, 2))
            found[pod.meta.uid] = Failure(
                refusals=refusals,
                errors=refusals // 2,
                retry_at=moment.seconds + dice.choice((-5.0, 0.0, 0.0, 0.0, 3.25)),
                outdated=dice.choice(("", "", "", "1")),
                blocked=dice.often(0.4),
                place=dice.choice(("", *_links(view, pod), *_links(view, pod))),
                unit=dice.choice((_WHOLE, _WHOLE, *_UNITS)),
                undeleted=dice.often(0.05),
            )
    return found


def _rounds(dice: Dice, view: View) -> dict[str, Round]:
    share, found = dice.some(0.0, 0.0, 0.5), {}
    for key, claim in sorted(view.inventory.claims.items()):
        if dice.often(share):
            users = view.inventory.pods_of(key)
            uids = [view.inventory.pods[user].meta.uid for user in users if dice.often(0.3)]
            uid = claim.meta.uid if dice.often(0.8) else "uid-before"
            found[key] = Round(uid, dice.choice((1, 2, 2, 3)), frozenset(uids))
    return found


def _unreplaced(dice: Dice, view: View) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for pod in _pods(view):
        owner = owner_of(pod)
        if owner and owner not in found and dice.often(0.12):
            gang = view.gang_of(pod, view.profile_of(pod))
            found[owner] = {f"uid-before-{pod.meta.name}": dice.choice((gang, "")) or f"uid-before-{pod.meta.name}"}
    return found


def _asked(dice: Dice, view: View, budgets: PodBudgets, moment: Moment) -> dict[BudgetLimit, BudgetAnswers]:
    share = dice.some(0.0, 0.3, 0.7)
    limits: list[BudgetLimit] = []
    for pod in _pods(view):
        names = tuple([budget.meta.name for budget in budgets.select(pod)])
        single = BudgetLimit(pod.meta.namespace, names) if names else BudgetLimit(pod.meta.namespace, (), pod.meta.uid)
        needs = [BudgetLimit(single.namespace, single.budgets, single.pod, needed) for needed in (1, 2, 3)]
        limits += [limit for limit in (needs if names else needs[:1]) if limit not in limits]
    return {limit: _answers(dice, moment.seconds) for limit in limits if dice.often(share)}


def _answers(dice: Dice, seconds: float) -> BudgetAnswers:
    return BudgetAnswers(
        dice.choice((0, 0, 0, 1, 4)),
        dice.choice((0, 0, 1)),
        seconds - dice.choice((0.0, 2.5, 5.0, 100.0)),
        seconds + dice.choice((-10.0, -10.0, 0.0, 2.75)),
        seconds - dice.choice((1.0, 1.0, 10.0, 30.0)),
        dice.choice((0.0, 0.0, 30.0, 45.0, 600.0)),
    )


def _names(view: View) -> Iterable[object]:
    """What may identify buckets, apart from the profile."""
    for _, rule in sorted(view.inventory.rules.items()):
        group = view.group_of(rule.meta.uid)
        yield group
        yield (group, rule.taint.key, rule.effective_effect)
    for _, each in sorted(view.inventory.slices.items()):
        for device in each.devices:
            for taint in device.taints:
                yield (each.driver, taint.key)


def _buckets(dice: Dice, view: View, profiles: tuple[Profile, ...], moment: Moment) -> dict[object, TokenBucket]:
    share, found = dice.some(0.2, 0.6, 0.9), dict[object, TokenBucket]()
    for name in dict.fromkeys(_names(view)):
        for position in (-1, 0, 1):
            if not dice.often(share):
                continue
            settings = profiles[max(position, 0)].settings
            rate = dice.choice((Rate(settings.rate, settings.burst), Rate(5.0, 10), Rate(1.0, 10)))
            bucket = TokenBucket(rate, moment.seconds - dice.choice((0.0, 0.05, 3.0)))
            for _ in range(dice.choice((1, rate.burst, rate.burst + 1, rate.burst + 2))):
                bucket.take(moment.seconds - 3.0, owing=dice.often(0.8))
            found[name, position] = bucket
    return found


def _departures(dice: Dice, profiles: tuple[Profile, ...], moment: Moment) -> dict[EvictionProfile, dict[str, float]]:
    found: dict[EvictionProfile, dict[str, float]] = {}
    for profile in profiles:
        number = dice.choice((0, 0, 0, 1, 2, 4))
        times = [moment.seconds - dice.choice((-math.inf, 70.0, 60.0, 30.0, 7.5)) for _ in range(number)]
        if number:
            found[profile.settings] = {f"uid-departed-{at}": time for at, time in enumerate(times)}
    return found
