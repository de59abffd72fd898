"""A scenario as data: pods with devices, what happens to them, and who has to go when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.apiserver.eviction.steps import Step

KEY: Final = "example.com/broken"
ITSELF: Final = "itself"
"""The pod that brings the claim along."""
NOBODY: Final = "nobody"
GROUP: Final = "group"
"""The PodGroup of the scenario."""


@dataclass(frozen=True)
class Claim:
    """A claim of a pod. Two pods that give it the same name share it.

    `devices`: their names with what is tolerated on each; one of the claim's name unless given. `generated`: from a
    template, for `made_for`. `marked`: it has the annotation of claims for extended resources, and is none. `told`: it
    stands in the pod's status, with its name or, as not needed, without one. `behind`: consumers that stand
    before the pod in reservedFor, as `group/resource/name`.
    """

    tolerates: tuple[str, ...] = ()
    name: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allocated: bool = True
    reserved_for: str = ITSELF
    behind: tuple[str, ...] = ()
    generated: bool = False
    made_for: str = ITSELF
    told: bool = True
    needed: bool = True
    extended: bool = False
    marked: bool = False
    admin: bool = False


@dataclass(frozen=True)
class Pod:
    """A pod; with one claim for one device of its own unless others are given.

    `called`: how the scenario names it, if another pod had its name before. `owner`: the kind of its controller.
    """

    name: str
    claims: tuple[Claim, ...] = (Claim(),)
    called: str = ""
    scheduled: bool = True
    phase: str = "Running"
    grace_seconds: int = 0
    group: str = ""
    owner: str = ""
    priority_class: str = ""

    @property
    def label(self) -> str:
        """Its name in the scenario."""
        return self.called or self.name


def holding(name: str, *tolerates: str) -> Pod:
    """A pod that tolerates these taints on its device."""
    return Pod(name, (Claim(tolerates),))


class Due(NamedTuple):
    """So many seconds after a taint, by its name in the scenario, was added.

    `r 1` is the rule r when it was changed for the first time, and `r 0` when it came.
    """

    taint: str = "r"
    seconds: int = 0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is done, and what has to come of it.

    `shows`: facts of semantics.md, by id. `steps` are followed by a restart of the evictor if there are any in
    `while_down`, which happen meanwhile, or in `after`. `alone`: it would touch the pods of other scenarios.
    `evicted`: when whoever goes is due; everybody else stays. `cancelled`: whom the evictor says to let live after all.
    `conditions`: of each rule, as `status reason: message`, once all is done.
    `in_tree` is what the in-tree controller does instead, and `why` the reason for that. `since_1_38`: what rules say
    where that controller, from 1.38 on, evicts as we do.
    """

    name: str
    shows: str
    pods: tuple[Pod, ...] = (Pod("a"),)
    steps: tuple[Step, ...]
    while_down: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    alone: bool = False
    evicted: Mapping[str, Due] = field(default_factory=dict)
    cancelled: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    in_tree: Mapping[str, Due] | None = None
    in_tree_conditions: Mapping[str, str] | None = None
    since_1_38: Mapping[str, str] | None = None
    why: str = ""

    @property
    def restarts(self) -> bool:
        """Whether the evictor is started anew in the middle of it."""
        return bool(self.while_down or self.after)
