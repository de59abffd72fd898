"""The policy as `patch` uses it: its reactions, and whether they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.policy.decide import BUILTIN_JUDGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.policy.model import Reaction
    from webhook.policy.store import PolicyState, PolicyStore


class ReactionPolicy:
    """Follows the policy store."""

    def __init__(self, policies: PolicyStore, on_change: Callable[[], None]) -> None:
        """`on_change` is called after another policy has become the active one, or it is known that there is none."""
        self._policies = policies
        self._on_change = on_change
        policies.subscribe(self._changed)

    @property
    def problem(self) -> str | None:
        """Why it is not known which reactions there are, or None.

        A cluster without a policy has none. That a policy cannot be read says nothing about them: where no other one
        was in use before, the rules of reactions stay as they are.
        """
        state = self._policies.state
        if not state.loaded:
            return "the policy has not been read yet"
        if state.failure and state.active is BUILTIN_JUDGE:
            return f"no policy could be loaded, so reactions wait: {state.failure}"
        return None

    @property
    def reactions(self) -> Sequence[Reaction] | None:
        """Those of the policy in use; None while there is a problem."""
        return None if self.problem else self._policies.active.policy.reactions

    def _changed(self, _old: PolicyState, _new: PolicyState) -> None:
        self._on_change()
