"""Keeps the DeviceTaintRules of patches, and of rules with `/scope: hardware`, as they should be.

Changes go into the index at once and are worked off in time slices. Owners of rules that may need other ones wait in a
work queue, by uid; what is ready is done in rounds: first everything that creates or changes rules, then what deletes
some, so that no device that goes from one patch to another is without its taint in between. Then statuses and Events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn

from msgspec import structs

from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.cluster.cache.listwatch import is_newer
from webhook.cluster.patch_writer import PatchWriter, WriteAnswer
from webhook.flowcontrol.loop import Again, Loop, together
from webhook.flowcontrol.workqueue import TimeSlice, WorkQueue
from webhook.patches.book import Handover, OwnerPlan, RuleBook, plan_of
from webhook.patches.filter_match import FaultNotes
from webhook.patches.filters import SharedSelectors
from webhook.patches.index import PatchIndex
from webhook.patches.refusals import WriteAttempts
from webhook.patches.slice_patches import AppliedAttributes
from webhook.patches.status import SELECTOR_FAILED, TOO_MANY_RULES, ExpansionOutcome, Standing, reason_of, status_of
from webhook.patches.stored import RuleApply, StoredPatch, StoredRule
from webhook.telemetry.workers import PatchMetrics

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 0.5
MOST_RETRY_SECONDS: Final = 60.0
UNSERVED_SECONDS: Final = 60.0
"""Until rules of patches that may be gone are looked at again."""
_LOOK_SECONDS: Final = 0.2
_AT_ONCE: Final = 8
"""Requests to write rules of one owner in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts:
    """What the controller needs. `leads` and `current`: whether this process may write, and knows enough to.

    `patches_served`: whether a patch that is not known is gone. `rules_version`: the resource version of rules up to
    which all changes were observed; empty before the first.

    `applied`: what the status of a patch should say about slices.

    `random` returns numbers in [0, 1), `seconds` seconds that only go forward, `now` the time in UTC.
    """

    writer: PatchWriter
    metrics: PatchMetrics
    ceiling: int
    leads: Callable[[], bool]
    current: Callable[[], bool]
    patches_served: Callable[[], bool]
    rules_version: Callable[[], str]
    now: Callable[[], datetime]
    seconds: Callable[[], float]
    random: Callable[[], float]
    applied: Callable[[StoredPatch], AppliedAttributes] = lambda _: AppliedAttributes()


def _is_news(known: StoredRule, new: StoredRule) -> bool:
    """Return whether it is another rule of that name, or a later version."""
    return known.meta.uid != new.meta.uid or is_newer(new.meta.resource_version, known.meta.resource_version)


def _in_question(stored: StoredRule) -> StoredRule:
    """Return a rule without what changes all the time: the evictors write its status."""
    meta = structs.replace(stored.rule.meta, resource_version="")
    return structs.replace(stored, rule=structs.replace(stored.rule, meta=meta, conditions=()))


class PatchController:
    """One event loop calls `observe_...`, `run` works."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts
        self._selectors = SharedSelectors()
        self.index = PatchIndex(self._selectors)
        self.book = RuleBook()
        self._handover = Handover(self.index)
        self._queue: WorkQueue[str] = WorkQueue(
            clock=parts.seconds,
            random=parts.random,
            first_seconds=FIRST_RETRY_SECONDS,
            most_seconds=MOST_RETRY_SECONDS,
        )
        self._under_way = 0
        """Owners in this round."""
        self._timeslice = TimeSlice()
        self._index_loop = Loop(self._keep_index)
        self._idle = asyncio.Event()
        self._notes = FaultNotes()
        self._refusals = WriteAttempts()
        self._reasons: dict[str, str] = {}
        self._faults: dict[str, int] = {}
        self._written: dict[str, str] = {}
        """Versions of rules that were written here, by name, until a watch shows them."""
        self._crowded: set[str] = set()
        """Uids of rules with too many siblings, about which an Event was written."""
        parts.metrics.watch(
            lambda: self.index.pending + self.waiting,
            lambda: sum(self._faults.values()),
            lambda: Counter(self._reasons.values()),
        )

    @property
    def waiting(self) -> int:
        """Owners of rules that are to be looked at, or are; those that wait after a failure are not among them."""
        return len(self._queue) + self._under_way

    # --- changes ---------------------------------------------------------------------------------

    def observe_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Note that a slice came, changed or went."""
        self.index.apply_slice(old, new)
        self._wake()

    def observe_class(self, name: str, new: DeviceClassSelectors | None) -> None:
        """Note that a DeviceClass came, changed or, if it is None, went."""
        self.index.apply_class(name, new)
        self._wake()

    def observe_patch(self, name: str, new: StoredPatch | None) -> None:
        """Note that a patch came, changed or went. One that is being deleted sets nothing any more."""
        self._look_at(self.book.put_patch(name, new))
        self.index.apply_patch(name, new.patch if new is not None and not new.patch.deleting else None)
        self._wake()

    def observe_rule(self, name: str, new: StoredRule | None) -> None:
        """Note that a rule came, changed or went. What was written here may come after earlier versions."""
        known, own = self.book.rules.get(name), self._written.get(name, "")
        if known and new and own and known.meta.uid == new.meta.uid and is_newer(own, new.meta.resource_version):
            return
        self._written.pop(name, None)
        concerned = self.book.put_rule(name, new)
        if known is None or new is None or _in_question(known) != _in_question(new):
            self._look_at(concerned)

    def has_seen(self, written: StoredRule) -> bool:
        """Return whether the watch was faster than the answer to a write: what is known of that rule is right then.

        A rule that is not known was deleted after that write. It would never be made again if it counted as stored.
        """
        seen = self._parts.rules_version()
        return bool(seen) and not is_newer(written.meta.resource_version, seen)

    def look_at_patches(self, names: Iterable[str]) -> None:
        """Note that the status of these patches may have to say something else."""
        patches = self.book.patches
        self._look_at([patches[name].meta.uid for name in names if name in patches])

    def _look_at(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._queue.add(uid)

    def _wake(self) -> None:
        self._idle.clear()
        self._index_loop.wake()

    # --- the work --------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Work until it is cancelled."""
        await together(self._index_loop.run(), self._keep_rules())

    async def _keep_index(self) -> Again:
        began = self._parts.seconds()
        self.index.fleet.forget_unused()
        self._timeslice.begin()
        any_step = False
        while self.index.step():
            any_step = True
            await self._timeslice.pause()
        self._look_at(self._changed_owners())
        if any_step:
            self._parts.metrics.patch_pass_seconds.observe(self._parts.seconds() - began)
        if not self._index_loop.woken:
            self._idle.set()
        return Again()

    def _changed_owners(self) -> list[str]:
        patches = self.book.patches
        found = [patches[name].meta.uid for name in self.index.take_changed() if name in patches]
        return found + list(self.book.scoped_in(self.index.take_changed_pools()))

    async def _keep_rules(self) -> NoReturn:
        while True:
            await self._round()

    async def _round(self) -> None:
        """Do everything that is ready."""
        uids = [await self._queue.get()]
        while len(self._queue):
            uids.append(await self._queue.get())
        self._under_way = len(uids)
        outcomes = {uid: await self._apply(uid) for uid in uids}
        for uid, (refused, failed) in outcomes.items():
            if not failed:
                also_refused, failed_now = await self._delete(uid, all_of_them=not refused)
                outcomes[uid] = refused or also_refused, failed_now
        for uid, (refused, failed) in outcomes.items():
            await self._report(uid, refused, failed)
            self._queue.done(uid)
            self._under_way -= 1

    async def _plan(self, uid: str) -> OwnerPlan:
        while not self._may_write():
            await self._idle.wait()
            if not (self._parts.current() and self._parts.leads()):
                await asyncio.sleep(_LOOK_SECONDS)
        await self._timeslice.pause()
        parts = self._parts
        served = parts.patches_served()
        return plan_of(uid, self.book, self.index, parts.ceiling, parts.now(), patches_served=served)

    def _may_write(self) -> bool:
        """Return whether plans still hold: nothing has changed that the index has not seen, and this process leads."""
        return self._idle.is_set() and self._parts.current() and self._parts.leads()

    async def _apply(self, uid: str) -> tuple[str, str]:
        """Create and change; return why something was refused, and why something failed."""
        plan = await self._plan(uid)
        creates = [each for each in plan.writes.applies if each.creates]
        changes = [each for each in plan.writes.applies if not each.creates]
        refused, failed = await self._apply_all(creates)
        if not failed:
            more_refused, failed = await self._apply_all(changes)
            refused = refused or more_refused
        self._look_at(self._lacks(uid, plan, creates))
        return refused, failed

    def _lacks(self, uid: str, plan: OwnerPlan, creates: list[RuleApply]) -> list[str]:
        """Note what is missing of a patch now; return the owners whose rules need no longer stay for it."""
        if plan.patch is None:
            return self._handover.has_all(uid)
        missing = [each for each in creates if each.name not in self.book.rules]
        return self._handover.lacks(uid, plan.patch.meta.name, None if plan.needed > self._parts.ceiling else missing)

    async def _apply_all(self, writes: list[RuleApply]) -> tuple[str, str]:
        refused = failed = ""
        for at in range(0, len(writes), _AT_ONCE):
            if not self._parts.leads():
                return refused, "another process leads"
            some = writes[at : at + _AT_ONCE]
            for write, answer in zip(
                some, await asyncio.gather(*map(self._parts.writer.apply_rule, some)), strict=True
            ):
                self._count("create" if write.creates else "update", write.name, answer)
                refused, failed = refused or answer.refused, failed or answer.failed
                if answer.stored is not None:
                    self.note_written(write.name, answer.stored)
            if failed:
                break
        return refused, failed

    def note_written(self, name: str, stored: StoredRule) -> None:
        """Note what this process wrote, unless a watch was faster."""
        known = self.book.rules.get(name)
        if not self.has_seen(stored) and (known is None or _is_news(known, stored)):
            self._written[name] = stored.meta.resource_version
            self._look_at([uid for uid in self.book.put_rule(name, stored) if uid not in stored.owner_uids])

    async def _delete(self, uid: str, *, all_of_them: bool) -> tuple[str, str]:
        """Delete the rules that are too many, or of those the ones with a taint that is gone; return as `_apply`."""
        plan = await self._plan(uid)
        refused = failed = ""
        for stored in plan.writes.deletes if all_of_them else plan.unwanted:
            if not self._may_write():
                self._queue.add(uid)  # look again first: it may be wanted by now
            if self._queue.comes_again(uid):
                break  # what takes its place may be in the next round
            heir = self._handover.heir_of(uid, stored)
            if heir:
                refused = refused or f"rule {stored.meta.name} stays, as patch {heir} lacks rules for its devices"
                continue
            answer = await self._parts.writer.delete_rule(stored)
            self._count("delete", stored.meta.name, answer)
            refused, failed = refused or answer.refused, failed or answer.failed
            if not answer.refused and not answer.failed:
                self._taken_away(stored, answer.stored)
        return refused, failed

    def _taken_away(self, stored: StoredRule, left: StoredRule | None) -> None:
        """Note what this process deleted; `left`: as it is until its finalizers are gone."""
        known = self.book.rules.get(stored.meta.name)
        if known is None or known.meta.uid != stored.meta.uid:
            return
        if left is None:
            self.book.put_rule(stored.meta.name, None)
        else:
            self.note_written(stored.meta.name, left)

    # --- what users see --------------------------------------------------------------------------

    async def _report(self, uid: str, refused: str, failed: str) -> None:
        """Report status, Events and figures, and note when the owner is to be looked at again."""
        plan = await self._plan(uid)
        if plan.writes and not (refused or failed):
            self._queue.add_rate_limited(uid)  # something changed meanwhile, or a webhook changes what is written
            return
        if plan.patch is None or plan.standing is None:
            self._forget(uid)
            await self._warn_of_siblings(uid, plan)
        else:
            failed = await self._report_patch(plan.patch, plan.standing, refused, failed) or failed
        if failed:
            self._queue.add_rate_limited(uid)
            return
        self._queue.forget(uid)
        if refused:
            # The number alone counts here: a round may take longer than attempts are remembered.
            self._queue.add_after(uid, self._refusals.tried(uid, self._version_of(uid), 0.0, refused))
            return
        self._refusals.forget(uid)
        if plan.waits:
            self._queue.add_after(uid, UNSERVED_SECONDS)

    def _version_of(self, uid: str) -> int:
        """Return the generation of an owner; 0 if it is gone."""
        owner = self.book.owner(uid)
        return 0 if owner is None else owner.rule.generation if isinstance(owner, StoredRule) else owner.generation

    async def _report_patch(self, stored: StoredPatch, standing: Standing, refused: str, failed: str) -> str:
        """Write the status if it has changed, and Events about faults; return why the status was not written."""
        uid = stored.meta.uid
        rules, fleet = self.book.owned(uid), self.index.fleet
        amiss = refused or failed or standing.needed > self._parts.ceiling
        there = {
            (pool, name)
            for each in (rules if amiss else ())
            for pool, names in (fleet.named(each.rule.selector) if each.rule.selector else ())
            for name in names
        }
        outcome = ExpansionOutcome(len(rules), refused, failed, len(there), self._parts.applied(stored))
        status = status_of(stored, standing, self._parts.ceiling, outcome, self._parts.now())
        self._reasons[uid] = reason_of(status.conditions)
        self._faults[uid] = sum([each.devices for each in standing.faults])
        for text in self._notes.due(uid, standing.faults):
            await self._parts.writer.warn(stored.owner, SELECTOR_FAILED, "Evaluate", text)
        if stored.status == status:
            return ""
        answer = await self._parts.writer.write_status(stored, status)
        if answer.refused or answer.failed:
            text = answer.refused or answer.failed
            log.warning("status not written", extra={"patch": stored.meta.name, "error": text})
            return text
        return ""

    async def _warn_of_siblings(self, uid: str, plan: OwnerPlan) -> None:
        """Queue an Event on a rule with more siblings than it may have rules for."""
        stored = self.book.owner(uid)
        over = isinstance(stored, StoredRule) and plan.needed > self._parts.ceiling
        if not over:
            self._crowded.discard(uid)
        elif uid not in self._crowded and isinstance(stored, StoredRule):
            self._crowded.add(uid)
            text = f"/scope: hardware needs {plan.needed} DeviceTaintRules, more than the {self._parts.ceiling} allowed"
            await self._parts.writer.warn(stored.owner, TOO_MANY_RULES, "Expand", text)

    def _forget(self, uid: str) -> None:
        self._reasons.pop(uid, None)
        self._faults.pop(uid, None)
        self._notes.due(uid, ())

    def _count(self, verb: str, rule: str, answer: WriteAnswer) -> None:
        result = "refused" if answer.refused else "failed" if answer.failed else "done"
        self._parts.metrics.patch_rule_writes.labels(verb, result).inc()
        if result == "done":
            log.info("rule written", extra={"verb": verb, "rule": rule})
        else:
            log.warning(
                "rule not written", extra={"verb": verb, "rule": rule, "error": answer.refused or answer.failed}
            )
