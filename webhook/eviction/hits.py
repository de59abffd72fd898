"""Which planned pods each rule hits, and all rules with one ceiling together. Pure.

What several rules hit together is counted as pods come and go, because no one could add it up for each change of a
patch with a hundred rules and a hundred thousand pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.eviction.pod_plan import PodPlan


class _Hits:
    """Plans by the uid of their pod, and counts by namespace of those pods that may be evicted."""

    __slots__ = ("count", "namespaces", "plans")

    def __init__(self) -> None:
        self.plans: dict[str, PodPlan] = {}
        self.count = 0
        self.namespaces: dict[str, int] = {}

    def add(self, plan: PodPlan) -> None:
        """Adds a pod, which must be new."""
        self.plans[plan.uid] = plan
        if not plan.held_by:
            namespace = plan.pod.meta.namespace
            self.count += 1
            self.namespaces[namespace] = self.namespaces.get(namespace, 0) + 1

    def discard(self, plan: PodPlan) -> None:
        """Removes a pod, which must be present."""
        del self.plans[plan.uid]
        if not plan.held_by:
            namespace = plan.pod.meta.namespace
            self.count -= 1
            self.namespaces[namespace] -= 1
            if not self.namespaces[namespace]:
                del self.namespaces[namespace]


class _JointHits(_Hits):
    """The same of several rules: a pod counts once, however many of them hit it."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        super().__init__()
        self._times: dict[str, int] = {}

    def add(self, plan: PodPlan) -> None:
        """One more rule hits the pod."""
        times = self._times[plan.uid] = self._times.get(plan.uid, 0) + 1
        if times == 1:
            super().add(plan)

    def discard(self, plan: PodPlan) -> None:
        """One rule less hits the pod."""
        times = self._times[plan.uid] = self._times[plan.uid] - 1
        if not times:
            del self._times[plan.uid]
            super().discard(plan)


_NOTHING = _Hits()


class RuleHits:
    """The pods that rules hit. Rules, pods and the groups that rules are counted in go by uid."""

    def __init__(self) -> None:
        self._of_rule: dict[str, _Hits] = {}
        self._joint: dict[str, _JointHits] = {}
        """By group, of those with more than one rule."""
        self._members: dict[str, list[str]] = {}
        self._group_of: dict[str, str] = {}

    def add(self, plan: PodPlan) -> None:
        """Adds a pod for each of the rules that its plan names; it must be new."""
        for rule, _ in plan.eviction.rules:
            hits = self._of_rule.get(rule)
            if hits is None:
                hits = self._of_rule[rule] = _Hits()
            hits.add(plan)
            joint = self._joint_of(rule)
            if joint is not None:
                joint.add(plan)

    def discard(self, plan: PodPlan) -> None:
        """Removes a pod that was added with this plan, before the plan changes."""
        for rule, _ in plan.eviction.rules:
            hits = self._of_rule[rule]
            hits.discard(plan)
            if not hits.plans:
                del self._of_rule[rule]
            joint = self._joint_of(rule)
            if joint is not None:
                joint.discard(plan)

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
            joint = self._joint[group] = _JointHits()
        for each in fresh:
            for plan in self._plans_of(each):
                joint.add(plan)

    def leave(self, rule: str) -> None:
        """A rule is counted in its group no longer."""
        group = self._group_of.pop(rule)
        members = self._members[group]
        members.remove(rule)
        joint = self._joint.get(group)
        if joint is not None:
            for plan in self._plans_of(rule):
                joint.discard(plan)
        if len(members) <= 1:
            self._joint.pop(group, None)
        if not members:
            del self._members[group]

    def plans_of(self, rule: str) -> list[PodPlan]:
        """The plans of the pods that a rule hits."""
        return list(self._plans_of(rule))

    def count_of(self, rule: str) -> int:
        """Number of pods that may be evicted for a rule; see `counts_in`."""
        return self._of_rule.get(rule, _NOTHING).count

    def counts_in(self, group: str) -> tuple[int, Collection[str]]:
        """Number of pods that the rules of a group hit, each once, and their namespaces.

        Pods of which a PodGroup keeps the claims reserved do not count, as they are not evicted.
        """
        members = self._members.get(group, ())
        found = self._of_rule.get(members[0], _NOTHING) if len(members) == 1 else self._joint.get(group, _NOTHING)
        return found.count, found.namespaces.keys()

    def _joint_of(self, rule: str) -> _JointHits | None:
        group = self._group_of.get(rule)
        return None if group is None else self._joint.get(group)

    def _plans_of(self, rule: str) -> Collection[PodPlan]:
        return self._of_rule.get(rule, _NOTHING).plans.values()
