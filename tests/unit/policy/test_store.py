"""The store of policies: what subscribers see, and when."""

from __future__ import annotations

from tests.unit.policy.documents import judge_of
from webhook.policy.decide import BUILTIN_JUDGE, PolicyState, PolicyStore

ONE, OTHER = judge_of(), judge_of()


class Followed:
    """A store, and what a subscriber was called with."""

    def __init__(self) -> None:
        self.store = PolicyStore()
        self.seen: list[tuple[PolicyState, PolicyState]] = []
        self.store.subscribe(lambda old, new: self.seen.append((old, new)))


def test_new_store_has_the_built_in_policy_and_says_that_nothing_was_loaded() -> None:
    assert PolicyStore().state == PolicyState(BUILTIN_JUDGE, None, loaded=False, failure="")


def test_subscriber_is_called_with_the_state_before_and_after_each_change() -> None:
    followed = Followed()
    followed.store.use(ONE)
    followed.store.use_candidate(OTHER)
    states = [PolicyState(), PolicyState(ONE, loaded=True), PolicyState(ONE, OTHER, loaded=True)]
    assert followed.seen == [(states[0], states[1]), (states[1], states[2])]


def test_subscriber_is_not_called_when_nothing_changes() -> None:
    followed = Followed()
    followed.store.use(ONE)
    followed.store.use(ONE)
    followed.store.use_candidate(None)
    assert len(followed.seen) == 1


def test_first_look_is_a_change_even_if_there_is_no_document() -> None:
    followed = Followed()
    followed.store.use(BUILTIN_JUDGE)
    assert [new.loaded for _, new in followed.seen] == [True]


def test_rejected_document_leaves_both_policies_and_the_next_good_one_clears_the_failure() -> None:
    store = PolicyStore(ONE, OTHER)
    store.reject("rules[0]: Required")
    assert store.state == PolicyState(ONE, OTHER, loaded=True, failure="rules[0]: Required")
    store.use(OTHER)
    assert store.state == PolicyState(OTHER, OTHER, loaded=True)


def test_subscriber_that_reads_the_store_sees_the_new_state() -> None:
    store = PolicyStore()
    seen = []
    store.subscribe(lambda _, new: seen.append((store.state, new)))
    store.use(ONE)
    assert seen == [(PolicyState(ONE, loaded=True),) * 2]
