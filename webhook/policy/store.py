"""The policy in use and the candidate beside it: written by one loader, read and followed by everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from webhook.policy.decide import BUILTIN_JUDGE, Judge


class PolicyState(NamedTuple):
    """What the store holds at one moment."""

    active: Judge = BUILTIN_JUDGE
    """The policy in use; the built-in one until a document was loaded."""
    candidate: Judge | None = None
    """The policy that is compared with it; None if there is none."""
    loaded: bool = False
    """Whether the first document was looked at, whatever came of it; also true if there is no document."""
    failure: str = ""
    """Why the document last written is not in use; empty if it is."""


Subscriber = Callable[[PolicyState, PolicyState], None]
"""Called with the state before and after a change. It must not block, raise, or write to the store."""


class PolicyStore:
    """Holds one `PolicyState`, replaced whole at each change. One thread writes; any thread may read."""

    def __init__(self, active: Judge = BUILTIN_JUDGE, candidate: Judge | None = None) -> None:
        self._state = PolicyState(active, candidate)
        self._subscribers: list[Subscriber] = []

    @property
    def state(self) -> PolicyState:
        """Everything at once: fields that belong together must come from one state."""
        return self._state

    @property
    def active(self) -> Judge:
        """The policy in use."""
        return self._state.active

    @property
    def candidate(self) -> Judge | None:
        """The policy that is compared with it; None if there is none."""
        return self._state.candidate

    def use(self, judge: Judge) -> None:
        """Makes this the active policy."""
        self._replace(self._state._replace(active=judge, loaded=True, failure=""))

    def reject(self, why: str) -> None:
        """Keeps the active policy: there is a newer document, and it cannot be used."""
        self._replace(self._state._replace(loaded=True, failure=why))

    def use_candidate(self, judge: Judge | None) -> None:
        """Makes this the candidate; None ends the comparison."""
        self._replace(self._state._replace(candidate=judge))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls this at each change from now on; subscribers are called in the order in which they came."""
        self._subscribers.append(subscriber)

    def _replace(self, new: PolicyState) -> None:
        old = self._state
        if new == old:
            return
        self._state = new
        for subscriber in self._subscribers:
            subscriber(old, new)
