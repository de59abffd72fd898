"""Which reactions the controller of patches carries out, and when it does not know."""

from __future__ import annotations

from tests.unit.patches.reacting import make_reaction
from webhook.daemons.reaction_keeper import ReactionPolicy
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.model import Policy
from webhook.policy.store import PolicyStore

REACTIONS = (make_reaction(),)
JUDGE = Judge(Policy(reactions=REACTIONS))


def test_reactions_are_not_known_before_a_policy_is() -> None:
    store = PolicyStore()
    policy = ReactionPolicy(store, lambda: None)
    assert policy.reactions is None
    assert policy.problem == "the policy has not been read yet"
    store.reject("line 1: no")
    assert policy.reactions is None, "none would delete all rules"
    assert policy.problem == "no policy could be loaded, so reactions wait: line 1: no"


def test_first_policy_that_can_be_loaded_has_the_reactions() -> None:
    store = PolicyStore()
    policy = ReactionPolicy(store, lambda: None)
    store.reject("no")
    store.use(JUDGE)
    assert policy.reactions == REACTIONS
    assert not policy.problem


def test_policy_that_is_broken_later_changes_nothing_and_one_that_is_gone_has_no_reactions() -> None:
    store = PolicyStore()
    policy = ReactionPolicy(store, lambda: None)
    store.use(JUDGE)
    store.reject("no")
    assert (policy.problem, policy.reactions) == (None, REACTIONS)
    store.use(BUILTIN_JUDGE)
    assert (policy.problem, policy.reactions) == (None, ())


def test_changes_are_passed_on() -> None:
    store, seen = PolicyStore(), []
    policy = ReactionPolicy(store, lambda: seen.append(policy.reactions))
    store.use(JUDGE)
    store.use(BUILTIN_JUDGE)
    assert seen == [REACTIONS, ()]
