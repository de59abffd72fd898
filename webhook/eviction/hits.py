"""Which pods each rule hits, and all rules with one ceiling together. Pure.

A rule hits the pods that are planned for it, and those with a request in flight that was sent for it: the watch may
show the end of such a pod, which drops its plan, before the answer arrives.

What several rules hit together is counted as pods come and go, because no one could add it up for each change of a
patch with a hundred rules and a hundred thousand pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from webhook.eviction.pod_plan import PodPlan
from webhook.inventory.evictions import RuleRef


class _Hits:
    """Plans by the uid of their pod, and counts by namespace of those pods that may be evicted.

    A pod counts once, however often it was added: by several rules, or as planned and as requested.
    """

    __slots__ = ("_again", "_held", "count", "namespaces", "plans")

    def __init__(self) -> None:
        self.plans: dict[str, PodPlan] = {}
        self.count = 0
        self.namespaces: dict[str, int] = {}
        self._again: dict[str, int] = {}
        """How many more times a pod was added after the first; without the pods that were added once."""
        self._held: set[str] = set()
        """Pods that do not count, as they are not evicted."""

    def add(self, plan: PodPlan, times: int = 1, *, held: bool) -> None:
        """Adds a pod. It counts unless it was `held` each time that it was added."""
        uid = plan.uid
        known = uid in self.plans
        self.plans[uid] = plan
        if known:
            self._again[uid] = self._again.get(uid, 0) + times
        elif times > 1:
            self._again[uid] = times - 1
        if held:
            if not known:
                self._held.add(uid)
        elif not known or uid in self._held:
            self._held.discard(uid)
            namespace = plan.pod.meta.namespace
            self.count += 1
            self.namespaces[namespace] = self.namespaces.get(namespace, 0) + 1

    def discard(self, uid: str, times: int = 1) -> None:
        """Removes a pod, which must have been added at least as often."""
        left = self._again.pop(uid, 0) - times
        if left >= 0:
            if left:
                self._again[uid] = left
            return
        plan = self.plans.pop(uid)
        if uid in self._held:
            self._held.discard(uid)
        else:
            self._uncount(plan)

    def recount(self, uid: str) -> None:
        """No request for the pod is in flight any more: its plan decides whether it counts."""
        plan = self.plans.get(uid)
        if plan is not None and plan.held_by and uid not in self._held:
            self._held.add(uid)
            self._uncount(plan)

    def _uncount(self, plan: PodPlan) -> None:
        namespace = plan.pod.meta.namespace
        self.count -= 1
        self.namespaces[namespace] -= 1
        if not self.namespaces[namespace]:
            del self.namespaces[namespace]

    def add_all_to(self, other: _Hits) -> None:
        """Adds each pod as often as it was added here."""
        for uid, plan in self.plans.items():
            other.add(plan, self._again.get(uid, 0) + 1, held=uid in self._held)

    def discard_all_from(self, other: _Hits) -> None:
        """Removes each pod as often as it was added here."""
        for uid in self.plans:
            other.discard(uid, self._again.get(uid, 0) + 1)


_NOTHING = _Hits()


class RuleHits:
    """The pods that rules hit. Rules, pods and the groups that rules are counted in go by uid."""

    def __init__(self) -> None:
        self._of_rule: dict[str, _Hits] = {}
        self._joint: dict[str, _Hits] = {}
        """By group, of those with more than one rule."""
        self._members: dict[str, list[str]] = {}
        self._group_of: dict[str, str] = {}

    def add(self, plan: PodPlan) -> None:
        """Adds a pod for each of the rules that its plan names; it must be new."""
        self._add(plan, plan.eviction.rules, held=bool(plan.held_by))

    def discard(self, plan: PodPlan) -> None:
        """Removes a pod that was added with this plan, before the plan changes."""
        self._discard(plan.uid, plan.eviction.rules)

    def begin_request(self, plan: PodPlan) -> None:
        """The rules of its plan hit the pod until `end_request`, whatever becomes of the plan meanwhile."""
        self._add(plan, plan.eviction.rules, held=False)

    def end_request(self, uid: str, rules: Iterable[RuleRef]) -> None:
        """The request for a pod was answered; `rules`: those of its plan at `begin_request`."""
        self._discard(uid, rules)
        for rule, _ in rules:
            self._of(rule).recount(uid)
            joint = self._joint_of(rule)
            if joint is not None:
                joint.recount(uid)

    def _add(self, plan: PodPlan, rules: Iterable[RuleRef], *, held: bool) -> None:
        for rule, _ in rules:
            hits = self._of_rule.get(rule)
            if hits is None:
                hits = self._of_rule[rule] = _Hits()
            hits.add(plan, held=held)
            joint = self._joint_of(rule)
            if joint is not None:
                joint.add(plan, held=held)

    def _discard(self, uid: str, rules: Iterable[RuleRef]) -> None:
        for rule, _ in rules:
            hits = self._of_rule[rule]
            hits.discard(uid)
            if not hits.plans:
                del self._of_rule[rule]
            joint = self._joint_of(rule)
            if joint is not None:
                joint.discard(uid)

    def join(self, rule: str, group: str) -> None:
        """A rule, which is in no group yet, is counted in this one."""
        members = self._members.setdefault(group, [])
        members.append(rule)
        self._group_of[rule] = group
        if len(members) == 1:
            return
        joint = self._joint.get(group)
        fresh = [rule] if joint is not None else members
        if joint is None:
            joint = self._joint[group] = _Hits()
        for each in fresh:
            self._of(each).add_all_to(joint)

    def leave(self, rule: str) -> None:
        """A rule is counted in its group no longer."""
        group = self._group_of.pop(rule)
        members = self._members[group]
        members.remove(rule)
        joint = self._joint.get(group)
        if joint is not None:
            self._of(rule).discard_all_from(joint)
        if len(members) <= 1:
            self._joint.pop(group, None)
        if not members:
            del self._members[group]

    def plans_of(self, rule: str) -> list[PodPlan]:
        """The plans of the pods that a rule hits."""
        return list(self._of(rule).plans.values())

    def count_of(self, rule: str) -> int:
        """Number of pods that may be evicted for a rule; see `counts_in`."""
        return self._of(rule).count

    def counts_in(self, group: str) -> tuple[int, Collection[str]]:
        """Number of pods that the rules of a group hit, each once, and their namespaces.

        Pods whose claims a PodGroup keeps reserved do not count, as they are not evicted.
        """
        members = self._members.get(group, ())
        found = self._of(members[0]) if len(members) == 1 else self._joint.get(group, _NOTHING)
        return found.count, found.namespaces.keys()

    def _joint_of(self, rule: str) -> _Hits | None:
        group = self._group_of.get(rule)
        return None if group is None else self._joint.get(group)

    def _of(self, rule: str) -> _Hits:
        return self._of_rule.get(rule, _NOTHING)
