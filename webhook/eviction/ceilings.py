"""Which rules have one ceiling, what counts against it, and which rules are stopped by it.

A patch that becomes forty rules was judged at admission as one impact, and so was a rule with `/scope: hardware` and
the rules for that hardware. So they have one ceiling, their pods are added up, and they stop together.

Any other rule is a group of its own. A ceiling is the confirmed impact, else the policy's limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule, RuleOrigin, counted_pods, evicted_pods
from webhook.api.slices import ResourceSlice
from webhook.eviction.ports import Ceiling, Dependencies, JudgedWhole
from webhook.inventory.evictions import RuleRef
from webhook.inventory.hardware import is_written_for_hardware
from webhook.inventory.rule_delta import only_less
from webhook.patches.expansion import is_written_for_patch
from webhook.patches.patch_reach import judged_whole
from webhook.policy.limits import limits_of_anybody, resolve_limit
from webhook.policy.model import Policy, PolicyMode, Share

log = logging.getLogger(__name__)
_EMPTY_MOST: Final = 1000
"""Patches without rules whose count is kept: rules may come back as long as the patch exists."""
_GONE_MOST: Final = 1000
"""Deleted rules whose group is remembered."""


class Confirmed(NamedTuple):
    """What the text on a rule or patch allows to evict, or why it does not count."""

    pods: int | None = None
    """At most, those included that were evicted before; None if the text is missing or does not count."""
    namespaces: int = 0
    problem: str = ""
    """Why the text does not count; empty if it does, or if there is none."""


NOT_CONFIRMED: Final = Confirmed()


def ceiling_of(
    rule: DeviceTaintRule,
    policy: Policy,
    totals: Callable[[], tuple[int, int]],
    confirmed: Confirmed = NOT_CONFIRMED,
    protected: Callable[[Collection[str]], Collection[str]] | None = None,
) -> Ceiling | None:
    """Return the ceiling of a rule under a policy; None is no limit.

    `totals`, for shares: counts the pods that a taint at most could hit, and their namespaces.

    A text that counts sets the ceiling, for as long as the rule has it. Without one the worker does not know who set
    the rule, so the ceiling is the highest limit that may have applied. A policy in mode warn or off refused
    nothing at admission, so there the worker stops nothing. A rule that was softened may be over the limit of its
    author, so in every mode its ceiling is the lowest limit that may have softened it, and pods in `protected`
    namespaces stay.
    """
    if confirmed.pods is not None:
        return Ceiling(confirmed.pods, confirmed.namespaces)
    limits = limits_of_anybody(policy.impact, rule.taint, rule.effective_effect)
    if rule.softened:
        limits = tuple(entry for entry in limits if entry.softens) or limits
    elif policy.mode is not PolicyMode.ENFORCE:
        return None
    limit_by = _lowest if rule.softened else _widest
    pods = limit_by([entry.pods for entry in limits], lambda: totals()[0])
    namespaces = limit_by([entry.namespaces for entry in limits], lambda: totals()[1])
    if pods is None and namespaces is None and not rule.softened:
        return None
    return Ceiling(
        pods,
        namespaces,
        confirmed=False,
        text_problem=confirmed.problem,
        softened=rule.softened,
        protected=protected if rule.softened else None,
    )


def _lowest(limits: Iterable[int | Share | None], total: Callable[[], int]) -> int | None:
    """Return the smallest of the limits as a number; None if none of them is a limit."""
    return min((number for number in _numbers(limits, total) if number is not None), default=None)


def _widest(limits: Iterable[int | Share | None], total: Callable[[], int]) -> int | None:
    """Return the largest of the limits as a number; None if one of them is no limit."""
    numbers = _numbers(limits, total)
    known = [number for number in numbers if number is not None]
    return max(known) if len(known) == len(numbers) else None


def _numbers(limits: Iterable[int | Share | None], total: Callable[[], int]) -> list[int | None]:
    return [resolve_limit(limit, total() if isinstance(limit, Share) else 0) for limit in limits]


class CeilingGroup:
    """The counts of these rules, by uid, and why they are stopped.

    Pods evicted before admission last judged the impact do not count against the limits of the policy. No confirmation
    restarts the count: it says itself how many pods were evicted before. Admission does not judge an update after which
    less can be hit, so that does not restart it either, nor does a change of the rules that a patch or another rule is
    expanded into.
    """

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.stopped = ""
        """Why no pod is evicted; empty if pods are."""
        self._left = 0
        """Pods counted for rules that are gone, while there is no other rule to take them over."""

    @property
    def counting(self) -> int:
        """Pods evicted for these rules that count against the ceiling, each once."""
        return self._left + sum([each.counting for each in self.tallies.values()])

    def add(self, rule: str, tally: Tally) -> None:
        """Add a rule. The first one takes over what was counted for rules that are gone."""
        self.tallies[rule] = tally
        tally.counting += self._left
        self._left = 0

    def remove(self, rule: str) -> str:
        """Remove a rule. Returns the rule that has taken over its count, or an empty text.

        Otherwise a patch would start from zero whenever its rules are replaced.
        """
        return self.take_over(self.tallies.pop(rule).counting)

    def take_over(self, counting: int) -> str:
        """Count pods that were evicted for a deleted rule. Returns the rule that counts them, or an empty text."""
        # The newest rule: those that replace others come first, and the others may all be about to go.
        heir = next(reversed(self.tallies), "") if counting else ""
        if heir:
            self.tallies[heir].counting += counting
        else:
            self._left += counting
        return heir

    def restart(self) -> None:
        """Start over: admission has judged the impact again, by the limits of the policy."""
        for tally in self.tallies.values():
            tally.counting = 0
        self._left = 0


def rule_rejudged(old: DeviceTaintRule | None, new: DeviceTaintRule) -> bool:
    """Tell whether admission judged an update of a rule, its confirmation aside; `old`: None if not known."""
    return old is not None and judged_of(old) != judged_of(new) and not only_less(new, old)


def judged_of(rule: DeviceTaintRule) -> tuple[object, ...]:
    """Return the fields whose change admission judges, without the confirmation. A later timeAdded passes."""
    return rule.selector, rule.taint.key, rule.taint.value, rule.effective_effect


class Tally:
    """Counts evicted pods of one rule since it was created.

    Fewer of them count against the ceiling if admission has judged the rule again, or if another rule with the same
    ceiling counts some of them; more, if the rule has taken over those of a rule that is gone. See `CeilingGroup`.
    """

    __slots__ = ("before", "counting", "evicted")

    def __init__(self, rule: DeviceTaintRule) -> None:
        self.before = evicted_pods(rule.conditions)
        """The count in the rule's condition when this process first saw the rule."""
        self.evicted = 0
        """Pods evicted since then."""
        # A change that no leader saw may have been a narrower selector, so it does not reset the count.
        self.counting = counted_pods(rule.conditions)
        """Pods that count against the ceiling."""

    @property
    def total(self) -> int:
        """All pods evicted for the rule."""
        return self.before + self.evicted

    def count(self, *, elsewhere: bool = False) -> None:
        """Count one more pod evicted for the rule. `elsewhere`: another rule with the same ceiling counts it."""
        self.evicted += 1
        self.counting += not elsewhere


@dataclass(slots=True)
class _Known:
    """What is kept of a rule. `group`: empty until it was sorted into one."""

    name: str
    tally: Tally
    group: str = ""
    origin: RuleOrigin | None = None
    """What it was written for. Kept if the marks are removed, as they would change the ceiling."""
    proof: tuple[object, ...] = ()
    """What it said when the controller would have written it for that."""


class _Seen(NamedTuple):
    """What a group hits: pods, those evicted before among them, their namespaces, and the rules that hit some."""

    pods: int
    namespaces: frozenset[str]
    hitting: AbstractSet[str]


class CeilingGroups:
    """All rules, in groups that have one ceiling each. Rules and groups go by uid; the group of a patch has its uid."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._groups: dict[str, CeilingGroup] = {}
        self._empty: dict[str, None] = {}
        """Groups without rules, the oldest first."""
        self._known: dict[str, _Known] = {}
        self._gone: dict[str, str] = {}
        """The groups of deleted rules, the oldest first. A request may turn out to count for one."""
        self._seen: dict[str, _Seen] = {}
        """What groups hit by the last plan."""
        self._counted: dict[str, _Seen] = {}
        """What they hit by the plan that is being made, before anything is taken out of it."""
        self._begun: dict[str, int] = {}
        """The count of each group when that was begun."""
        self.counted_anew: set[str] = set()
        """Rules, by name, that have a condition to write although no pod was evicted for them; the loop empties it."""
        self.to_lift: set[str] = set()
        """Stopped groups that may hit less since one of their rules has changed; the loop empties it."""

    # --- queries ---------------------------------------------------------------------------------

    def tally_of(self, rule: DeviceTaintRule) -> Tally:
        """Return the count of a rule; as it was written, if the rule is gone meanwhile."""
        known = self._known.get(rule.meta.uid)
        return Tally(rule) if known is None else known.tally

    def group_of(self, uid: str) -> str:
        """Return the uid of the patch or rule with which a rule, by uid, was judged; its own if by itself."""
        known = self._known.get(uid)
        return self._gone.get(uid, uid) if known is None else known.group

    def stopped(self, rule: DeviceTaintRule) -> str:
        """Say why no pod is evicted for a rule; empty if pods are."""
        known = self._known.get(rule.meta.uid)
        return "" if known is None else self._groups[known.group].stopped

    # --- changes ---------------------------------------------------------------------------------

    def observe(self, old: DeviceTaintRule | None, rule: DeviceTaintRule) -> bool:
        """Note that a rule is new, or it or a limit has changed. Tell whether more or fewer may be stopped now.

        A rule is stopped no longer, until it is found to hit too much. In a group of several that is looked at later:
        `to_lift`.
        """
        uid, known = rule.meta.uid, self._known.get(rule.meta.uid)
        if known is None:
            known = self._known[uid] = _Known(rule.meta.name, Tally(rule))
        before, key = known.group, self._key_of(rule, known)
        if not before:
            waited = key == uid and uid in self._groups
            self._add(uid, known, key)
            if waited:
                self._sort_again(self._marked_for(uid))
        elif before != key:
            # It has a confirmation of its own that counts, or none any more; or other marks. Its pods count in both
            # groups from then on: the confirmation says how many were evicted before, and those that it leaves were
            # evicted under their limit.
            self._remove(uid, known)
            self._add(uid, known, key)
        group = self._groups[key]
        judged = key == uid and rule_rejudged(old, rule) and not self._is_confirmed(rule)
        if judged:
            self._restart(group)
        if group.stopped and (key == uid or len(group.tallies) == 1):
            self._set(group, "")
            return True
        if group.stopped and old is not None:
            self.to_lift.add(key)
        confirmed = old is not None and old.meta.annotations != rule.meta.annotations
        return judged or confirmed or before not in ("", key) or bool(group.stopped)

    def observe_patch(self, old: ResourceSlicePatch | None, patch: ResourceSlicePatch) -> bool:
        """Note that a patch is known now, or has changed; tell whether that may change what is stopped."""
        if old is not None and _said(old) == _said(patch):
            return False
        self._sort_again(self._marked_for(patch.meta.uid))
        group = self._groups.get(patch.meta.uid)
        if group is None:
            return True
        rejudged = old is not None and judged_whole(patch, old, self._deps.patches().values())
        like = next(iter(self._rules_of(group)), None)
        ceiling = None if like is None else self._deps.patch_ceiling_of(like, patch)
        if rejudged and not (ceiling is not None and ceiling.confirmed):
            self._restart(group)
        self._set(group, "")
        return True

    def observe_slice(self, changed: ResourceSlice) -> None:
        """Note that a slice has changed, and may show what hardware rules are for."""
        rules, pool = self._deps.inventory.rules.values(), changed.pool
        marked = [each for each in rules if each.origin.rule and each.selector and each.selector.pool == pool]
        self._sort_again([each for each in marked if (known := self._known.get(each.meta.uid)) and not known.proof])

    def _marked_for(self, owner: str) -> list[DeviceTaintRule]:
        """Return the rules that name a patch or rule, by uid, as their owner."""
        return [each for each in self._deps.inventory.rules.values() if each.origin.uid == owner]

    def _sort_again(self, marked: list[DeviceTaintRule]) -> None:
        """Sort these rules into groups again: what shows where they belong has changed."""
        for each in marked:
            known = self._known.get(each.meta.uid)
            if known is not None and known.group != self._key_of(each, known):
                self.observe(each, each)

    def lift(self, key: str) -> None:
        """End the stop of a group, until it is found to hit too much again."""
        group = self._groups.get(key)
        if group is not None:
            self._set(group, "")

    def lift_all(self) -> None:
        """Do the same for all groups: a limit has changed."""
        for rule in self._deps.inventory.rules.values():
            self.observe(rule, rule)
        for group in self._groups.values():
            self._set(group, "")
        self.to_lift.clear()

    def forget(self, rule: DeviceTaintRule) -> None:
        """Forget a rule that is gone. What was counted for it goes on to count in its group."""
        uid = rule.meta.uid
        known = self._known.pop(uid, None)
        if known is None:
            return
        if known.group != uid:
            self._gone[uid] = known.group
            if len(self._gone) > _GONE_MOST:
                del self._gone[next(iter(self._gone))]
        self._remove(uid, known)

    def count_evicted(self, rules: Iterable[RuleRef]) -> None:
        """Count one pod that was evicted for these rules: for each of them, and once against each ceiling."""
        counted = set[str]()
        for uid, _ in rules:
            known = self._known.get(uid)
            key = self._gone.get(uid, "") if known is None else known.group
            if known is not None:
                known.tally.count(elsewhere=key in counted)
            elif key in self._groups and key not in counted:
                self._note_heir(self._groups[key].take_over(1))
            counted.add(key)

    def _set(self, group: CeilingGroup, why: str) -> None:
        if group.stopped != why:
            self._count_anew(group)
        group.stopped = why

    def _count_anew(self, group: CeilingGroup) -> None:
        self.counted_anew.update([self._known[uid].name for uid in group.tallies])

    # --- ceilings --------------------------------------------------------------------------------

    def stop(self, key: str) -> None:
        """Stop a group that hits too much. If it does by its limits of now, it stays stopped until they change."""
        group, seen = self._groups.get(key), self._counted.get(key)
        if group is None or group.stopped or seen is None:
            return
        if why := self._over(key, group, seen):
            self._set(group, why)
            first = next(iter(self._rules_of(group)), None)
            log.error("eviction stopped", extra={"rule": first.meta.name if first else key, "error": why})

    def exceeded(self, key: str, pods: int, names: AbstractSet[str], hitting: AbstractSet[str]) -> str:
        """Say why a group evicts no pod that hits this number of pods in these namespaces; empty if it does.

        `hitting`: the rules, by uid, that hit pods now.
        """
        group = self._groups.get(key)
        if group is None or group.stopped:
            return "" if group is None else group.stopped
        seen = _Seen(pods + self._begun.get(key, group.counting), frozenset(names), hitting)
        if key not in self._counted or self._counted[key].pods < seen.pods:
            self._counted[key] = seen
        return self._over(key, group, seen)

    def begin(self) -> None:
        """Begin a plan: it counts pods as they are at this moment, and those that were evicted before it."""
        self._begun, self._counted = {key: group.counting for key, group in self._groups.items()}, {}

    def stopped_by(self, key: str, grown_by: Callable[[str], AbstractSet[str]]) -> str:
        """Say why, by the last plan. `grown_by`: the pods, by `namespace/name`, that a rule has come to hit since."""
        group = self._groups.get(key)
        if group is None or group.stopped:
            return "" if group is None else group.stopped
        fresh = {uid: grown_by(uid) for uid in group.tallies}
        pods = frozenset[str]().union(*fresh.values())
        known = self._seen.get(key, _Seen(group.counting, frozenset(), frozenset()))
        names = known.namespaces.union([pod.partition("/")[0] for pod in pods])
        hitting = frozenset({*known.hitting, *[uid for uid, found in fresh.items() if found]})
        return self._over(key, group, _Seen(known.pods + len(pods), names, hitting))

    def _over(self, key: str, group: CeilingGroup, seen: _Seen) -> str:
        ceilings, names = self._ceilings(key, group, seen.hitting), seen.namespaces
        return next(filter(None, [each.exceeded_by(seen.pods, len(names), names) for each in ceilings]), "")

    def settle(self, groups: AbstractSet[str]) -> None:
        """Note that a plan is made: only these groups hit pods."""
        self._seen = {key: seen for key, seen in (self._seen | self._counted).items() if key in groups}
        self._begun.clear()

    def _ceilings(self, key: str, group: CeilingGroup, hitting: AbstractSet[str]) -> Iterator[Ceiling]:
        """Yield the ceiling of a group; of a patch one for each of its taints, each for all of the patch."""
        rules = self._rules_of(group)
        owner = next((each for each in rules if each.meta.uid == key), None)
        if owner is not None:
            name = f"DeviceTaintRule {owner.meta.name}"
            whole = JudgedWhole(name, "the rules for its hardware") if len(rules) > 1 else None
            yield from _of(self._deps.ceiling_of(owner), whole)
            return
        counted = [each for each in rules if each.meta.uid in hitting or self.tally_of(each).counting]
        # The ceilings of rules of a patch that are alike in this are the same.
        sorts = {(each.taint.key, each.taint.value, each.effective_effect, each.softened): each for each in counted}
        for _, rule in sorted(sorts.items()):
            origin = self._known[rule.meta.uid].origin or rule.origin
            if origin.patch:
                patch = self._deps.patches().get(origin.name) if self._is_there(origin) else None
                ceiling = self._deps.patch_ceiling_of(rule, patch)
                yield from _of(ceiling, JudgedWhole(f"ResourceSlicePatch {origin.name}", "all of its rules"))
            else:  # its owner is not known, or gone
                whole = JudgedWhole(f"DeviceTaintRule {origin.name}", "the rules for its hardware")
                yield from _of(self._deps.ceiling_of(rule), whole)

    # --- groups ----------------------------------------------------------------------------------

    def _key_of(self, rule: DeviceTaintRule, known: _Known) -> str:
        """Return the group of a rule. One with a confirmation of its own that counts was confirmed by itself."""
        says, origin, proof, written = judged_of(rule), known.origin, known.proof, self._is_written(rule)
        if written or (origin is None and written is None):
            origin = known.origin = rule.origin
            if written:
                known.proof = says
        elif origin is None or (written is False and (proof != says if proof else rule.origin.uid == origin.uid)):
            origin = known.origin = RuleOrigin()
        # Marks that are taken away or made up later change nothing: the guard does not judge them.
        if not origin.belongs_to or (CONFIRM_IMPACT in rule.meta.annotations and self._is_confirmed(rule)):
            return rule.meta.uid
        return origin.belongs_to

    def _is_written(self, rule: DeviceTaintRule) -> bool | None:
        """Tell whether the controller would write the rule for what its marks name; None: no marks, or not known.

        Marks alone prove nothing: anyone who may write rules can set them.
        """
        origin, rules, patches = rule.origin, self._deps.inventory.rules, self._deps.patches()
        if not origin.belongs_to:
            return None
        if self._is_there(origin):
            if origin.patch:
                return is_written_for_patch(rule, patches[origin.name])
            return is_written_for_hardware(rule, rules[origin.name], self._deps.inventory.pools)
        known = {each.meta.uid for each in rules.values()} | {each.meta.uid for each in patches.values()}
        return False if origin.uid in known else None

    def _add(self, uid: str, known: _Known, key: str) -> None:
        self._empty.pop(key, None)
        self._groups.setdefault(key, CeilingGroup()).add(uid, known.tally)
        known.group = key

    def _remove(self, uid: str, known: _Known) -> None:
        """Take a rule out of its group."""
        key = known.group
        group = self._groups[key]
        self._note_heir(group.remove(uid))
        if group.tallies:
            if group.stopped:
                self.to_lift.add(key)
        elif known.origin is not None and known.origin.patch and key != uid:
            self._set_aside(key)
        else:
            del self._groups[key]

    def _note_heir(self, heir: str) -> None:
        """Note that the count of this rule has changed, as it took over that of a deleted one; empty if none has."""
        if heir:
            self.counted_anew.add(self._known[heir].name)

    def _set_aside(self, key: str) -> None:
        """Keep the count of a patch whose last rule is gone, for the rules that it may still get."""
        self._empty[key] = None
        if len(self._empty) > _EMPTY_MOST:
            oldest = next(iter(self._empty))
            del self._empty[oldest], self._groups[oldest]

    def _rules_of(self, group: CeilingGroup) -> list[DeviceTaintRule]:
        rules = self._deps.inventory.rules
        found = [(uid, rules.get(self._known[uid].name)) for uid in group.tallies]
        return [rule for uid, rule in found if rule is not None and rule.meta.uid == uid]

    # --- what was judged -------------------------------------------------------------------------

    def _is_confirmed(self, rule: DeviceTaintRule) -> bool:
        ceiling = self._deps.ceiling_of(rule)
        return ceiling is not None and ceiling.confirmed

    def _is_there(self, origin: RuleOrigin) -> bool:
        """Return whether the patch or rule is known."""
        known = self._deps.patches() if origin.patch else self._deps.inventory.rules
        found = known.get(origin.name)
        return found is not None and found.meta.uid == origin.uid

    def _restart(self, group: CeilingGroup) -> None:
        before = group.counting
        group.restart()
        if before:
            self._count_anew(group)


def _of(ceiling: Ceiling | None, whole: JudgedWhole | None) -> Iterator[Ceiling]:
    if ceiling is not None:
        yield ceiling._replace(whole=whole)


def _said(patch: ResourceSlicePatch) -> tuple[object, ...]:
    """Return what of a patch may change its ceiling, or what was judged."""
    return patch.filter, patch.taints, patch.meta.annotations
