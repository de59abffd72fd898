"""Keeps the DeviceTaintRules of the policy's reactions as they should be.

It looks again at each change of slices, of rules of reactions and of the policy, and when a taint will have lasted, or
been gone, for long enough. What is to be written is worked out again every few writes, so that no plan gets old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, NoReturn

from webhook.api.rules import REASONS
from webhook.cluster.patch_writer import PatchWriter, WriteAnswer
from webhook.daemons.patch_controller import PatchController
from webhook.flowcontrol.loop import Again, Loop
from webhook.flowcontrol.rates import Backoff
from webhook.patches.reactions import ABOVE_MAX_DEVICES, WITHIN_MAX_DEVICES, ReactionPass, react
from webhook.patches.reasons import FirstSights, ReactionRule
from webhook.patches.refusals import WriteAttempts
from webhook.patches.status import RULE_REFUSED
from webhook.patches.stored import StoredRule
from webhook.policy.model import Reaction
from webhook.telemetry.workers import PatchMetrics, ReactionMetrics

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.2
"""Between two looks at least."""
_PAUSE_SHARE: Final = 4
"""A pause is that many times as long as a pass took: at most a fifth of the time goes into passes."""
_LOOK_SECONDS: Final = 0.5
"""How often to ask whether reactions may be carried out now."""
_FIRST_RETRY_SECONDS: Final = 0.5
_MOST_RETRY_SECONDS: Final = 60.0
_AT_ONCE: Final = 8
"""Requests in flight."""
_OF_ONE_PLAN: Final = 4 * _AT_ONCE
"""Writes before the next plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionParts:
    """What the keeper needs; `leads`, `current`, `now`, `seconds` and `random` are those of `ControllerParts`.

    `reactions` are those of the policy in use, None while no policy is loaded.
    """

    writer: PatchWriter
    metrics: ReactionMetrics
    writes: PatchMetrics
    reactions: Callable[[], Sequence[Reaction] | None]
    leads: Callable[[], bool]
    current: Callable[[], bool]
    now: Callable[[], datetime]
    seconds: Callable[[], float]
    random: Callable[[], float]


class _Step(NamedTuple):
    """One write."""

    verb: str
    name: str
    wanted: Hashable
    act: Callable[[], Awaitable[WriteAnswer]]
    deletes: StoredRule | None = None


class ReactionKeeper:
    """One event loop calls `observe_...` and `wake`, `run` works."""

    def __init__(self, parts: ReactionParts, controller: PatchController, sights: FirstSights) -> None:
        """Use what `controller` knows of slices and rules; it has to know of each change before the keeper."""
        self._parts = parts
        self._controller = controller
        self._loop = Loop(self._look)
        self._sights = sights
        self._attempts = WriteAttempts()
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _MOST_RETRY_SECONDS, parts.random)
        self._pass_seconds = 0.0
        self._above: frozenset[str] = frozenset()
        """Reactions that `maxDevices` held back the last time, by name."""
        self._refused = False

    def wake(self) -> None:
        """Look again, as slices have changed."""
        self._loop.wake()

    def observe_policy(self) -> None:
        """Note that another policy is in use; what the last one's limits forbade may be allowed now."""
        self._attempts.clear()
        self.wake()

    def observe_rule(self, old: StoredRule | None, new: StoredRule | None) -> None:
        """Note that a rule came, changed or went."""
        if any(each is not None and REASONS in each.meta.annotations for each in (old, new)):
            self.wake()

    async def run(self) -> NoReturn:
        """Work until it is cancelled."""
        await self._loop.run()

    async def _look(self) -> Again:
        self._attempts.expire(self._parts.seconds())
        seconds: float | None = _LOOK_SECONDS
        while (plan := self._plan()) is not None:
            steps = self._steps(plan)
            now = self._parts.seconds()
            waits = {each.name: self._attempts.left_seconds(each.name, each.wanted, now) for each in steps}
            due = [each for each in steps if waits[each.name] <= 0][:_OF_ONE_PLAN]
            if not due:
                await self._report(plan, waits)
                ends = [*waits.values(), *([] if plan.next_seconds is None else [plan.next_seconds])]
                seconds = min(ends, default=None)
                break
            if not await self._carry_out(due):
                await self._report(plan, waits)
                await asyncio.sleep(self._backoff.next_seconds())
        return Again(seconds, max(PAUSE_SECONDS, _PAUSE_SHARE * self._pass_seconds))

    def _plan(self) -> ReactionPass | None:
        """Return what should be there as things are now; None if that is unknown, or not for this process to write."""
        parts, reactions = self._parts, self._parts.reactions()
        if reactions is None or not parts.current() or not parts.leads():
            return None
        began = parts.seconds()
        rules = [each.rule for each in self._controller.book.rules.values()]
        plan = react(self._controller.index.pools, rules, reactions, parts.now(), self._sights)
        self._pass_seconds = parts.seconds() - began
        return plan

    def _steps(self, plan: ReactionPass) -> list[_Step]:
        """Return all writes of a plan, those that create first."""
        writer, stored = self._parts.writer, self._controller.book.rules
        writes = [
            _Step(
                "create" if each.creates else "update",
                each.rule.name,
                _essence(each.rule),
                partial(writer.write_reaction, each),
            )
            for each in plan.write
        ]
        deletes = [stored[name] for name in plan.delete]
        return writes + [
            _Step("delete", each.meta.name, None, partial(writer.delete_rule, each), each) for each in deletes
        ]

    async def _carry_out(self, steps: Sequence[_Step]) -> bool:
        """Return whether the server took any of it, or at least answered with a refusal."""
        answered = False
        for at in range(0, len(steps), _AT_ONCE):
            if not self._parts.leads():
                break
            some = steps[at : at + _AT_ONCE]
            answers = await asyncio.gather(*[each.act() for each in some])
            for step, answer in zip(some, answers, strict=True):
                self._take_down(step, answer)
                answered = answered or not answer.failed
            if not answered:
                return False
        self._backoff.reset()
        return True

    def _take_down(self, step: _Step, answer: WriteAnswer) -> None:
        """Count what was written before the watch shows it: the next plan must not exceed `maxDevices`."""
        result = "refused" if answer.refused else "failed" if answer.failed else "done"
        self._parts.writes.patch_rule_writes.labels(step.verb, result).inc()
        fields = {"verb": step.verb, "rule": step.name}
        if result == "done":
            log.info("rule of a reaction written", extra=fields)
        else:
            log.warning("rule of a reaction not written", extra={**fields, "error": answer.refused or answer.failed})
        self._attempts.tried(step.name, step.wanted, self._parts.seconds(), answer.refused)
        if answer.stored is not None:
            self._controller.note_written(step.name, answer.stored)
        elif result == "done" and step.deletes is not None:
            known = self._controller.book.rules.get(step.name)
            if known is not None and known.meta.uid == step.deletes.meta.uid:
                self._controller.observe_rule(step.name, None)

    # --- what users see --------------------------------------------------------------------------

    async def _report(self, plan: ReactionPass, names: Iterable[str]) -> None:
        """Show figures, and write an Event where one has changed from good to bad or back."""
        refused = self._attempts.refused(names)
        self._parts.metrics.show(plan.outcomes, len(refused))
        before, self._above = (
            self._above,
            frozenset([each.name for each in plan.outcomes if each.reason == ABOVE_MAX_DEVICES]),
        )
        for each in plan.outcomes:
            if (each.name in self._above) != (each.name in before):
                await self._tell(each.reason, f"reaction {each.name}: {each.message}")
        was_refused, self._refused = self._refused, bool(refused)
        if refused and not was_refused:
            name, why = min(refused.items())
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            await self._tell(RULE_REFUSED, f"rule {name} of a reaction{more} was refused: {why}")

    async def _tell(self, reason: str, note: str) -> None:
        warns = reason != WITHIN_MAX_DEVICES
        log.log(
            logging.WARNING if warns else logging.INFO, "reactions changed", extra={"reason": reason, "detail": note}
        )
        await self._parts.writer.report(reason, note, warns=warns)


def _essence(rule: ReactionRule) -> Hashable:
    """Return what matters in a rule: two writes of it that differ in times alone are the same attempt."""
    return rule.level, tuple([(reason.id, reason.value, reason.clear is None) for reason in rule.reasons])
