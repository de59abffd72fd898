"""Which reactions the controller of patches carries out, and when it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.patches.reacting import make_reaction
from webhook.config.workers import parse_patch
from webhook.daemons.patch import Patcher
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.model import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.policy.model import Reaction

REACTIONS = (make_reaction(),)
JUDGE = Judge(Policy(reactions=REACTIONS))


class World:
    """A controller of patches that asks nothing of its cluster."""

    def __init__(self) -> None:
        self._patcher = Patcher(parse_patch("patch", ["--kubeconfig=/nonexistent"], {}))
        self.store = self._patcher._policies
        self.keeper = self._patcher._reactions

    @property
    def problem(self) -> str | None:
        """Why reactions wait."""
        return self._patcher._policy_problem

    @property
    def reactions(self) -> Sequence[Reaction] | None:
        """What the keeper asks for."""
        return self.keeper._parts.reactions()


def test_reactions_are_not_known_before_a_policy_is() -> None:
    policy = World()
    store = policy.store
    assert policy.reactions is None
    assert policy.problem == "the policy has not been read yet"
    store.reject("line 1: no")
    assert policy.reactions is None, "none would delete all rules"
    assert policy.problem == "no policy could be loaded, so reactions wait: line 1: no"


def test_first_policy_that_can_be_loaded_has_the_reactions() -> None:
    policy = World()
    store = policy.store
    store.reject("no")
    store.use(JUDGE)
    assert policy.reactions == REACTIONS
    assert not policy.problem


def test_policy_that_is_broken_later_changes_nothing_and_one_that_is_gone_has_no_reactions() -> None:
    policy = World()
    store = policy.store
    store.use(JUDGE)
    store.reject("no")
    assert (policy.problem, policy.reactions) == (None, REACTIONS)
    store.use(BUILTIN_JUDGE)
    assert (policy.problem, policy.reactions) == (None, ())


def test_changes_are_passed_on() -> None:
    policy = World()
    store, seen = policy.store, []
    policy.keeper.observe_policy = lambda: seen.append(policy.reactions)  # type: ignore[method-assign]
    store.use(JUDGE)
    store.use(BUILTIN_JUDGE)
    assert seen == [REACTIONS, ()]
