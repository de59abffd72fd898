"""Keeps the admission policies that API servers evaluate by themselves equal to the policy, or reports what differs.

Only the leader does. It has a client of its own, and nothing that happens here reaches the evictions beside it. It
looks at each change of the policy and of those objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from webhook.cluster.cache.wire import is_newer
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.settings import SyncMode
from webhook.flowcontrol.backoff import Backoff
from webhook.policy.decide import BUILTIN_JUDGE
from webhook.policy.vap.drift import MUTATING, FallbackState, compare, key_of, writes_for
from webhook.policy.vap.export import Coverage
from webhook.policy.vap.fallback import export_fallback
from webhook.telemetry.repeats import LastingFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import Any

    from webhook.cluster.admission_policy_writer import AdmissionPolicyWriter
    from webhook.cluster.cache.admission_policies import AdmissionPolicyCache
    from webhook.cluster.settings import FallbackSettings
    from webhook.policy.model import Policy
    from webhook.policy.store import PolicyState, PolicyStore
    from webhook.policy.vap.drift import AdmissionObjectKey, Comparison, FallbackWrite, StoredObject
    from webhook.policy.vap.export import Export
    from webhook.telemetry.fallback import FallbackMetrics

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.2
"""Between two looks at least."""
_LOOK_SECONDS: Final = 0.5
"""How often to ask whether there is something to compare."""
_AGAIN_SECONDS: Final = 300.0
_SEEN_SECONDS: Final = 5.0
"""How long a watch may take to show what was written."""
_FIRST_RETRY_SECONDS: Final = 1.0
_MOST_RETRY_SECONDS: Final = 60.0
_NAMED_MOST: Final = 20
_AMISS: Final = frozenset(FallbackState) - {FallbackState.IN_SYNC}


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackParts:
    """What the keeper needs. `tell` writes an Event with a reason and a note; `random` returns numbers in [0, 1)."""

    policies: PolicyStore
    settings: FallbackSettings
    cache: AdmissionPolicyCache
    writer: AdmissionPolicyWriter
    metrics: FallbackMetrics
    tell: Callable[[str, str], Awaitable[None]]
    leads: Callable[[], bool]
    random: Callable[[], float]


class _Settled(NamedTuple):
    """An object that was as it should be: what was wanted then, and what was stored."""

    spec: Mapping[str, Any]
    uid: str
    generation: int


class FallbackKeeper:
    """One event loop calls `wake`, `run` works."""

    def __init__(self, parts: FallbackParts) -> None:
        self._parts = parts
        self._changed = asyncio.Event()
        self._exported: tuple[Policy, str | None, Export] | None = None
        self._settled: dict[AdmissionObjectKey, _Settled] = {}
        self._told: frozenset[str] = frozenset()
        self._fault = LastingFault()
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _MOST_RETRY_SECONDS, parts.random)
        parts.policies.subscribe(self._policy_changed)
        parts.metrics.start(state.value for state in FallbackState)

    def wake(self) -> None:
        """An object has changed."""
        self._changed.set()

    def _policy_changed(self, old: PolicyState, new: PolicyState) -> None:
        if new.active is not old.active:
            self._backoff.reset()
            self._changed.set()

    async def run(self) -> NoReturn:
        """Works until it is cancelled."""
        while True:
            self._changed.clear()
            try:
                seconds = await self._look()
            except ClusterError as error:
                seconds = self._failed(str(error), error.retry_after_seconds)
            await asyncio.sleep(_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()

    async def _look(self) -> float:
        """Compares, and writes if it should; returns in how many seconds to look again although nothing has changed."""
        if not self._parts.leads() or not self._usable:
            return _LOOK_SECONDS
        problem = self._parts.cache.problem
        if problem is not None:
            self._parts.metrics.set_problem(exists=True)
            return _LOOK_SECONDS
        exported = await self._export()
        failure = ""
        if self._parts.settings.mode is SyncMode.APPLY:
            failure = await self._write(exported)
        found = self._compared(exported, self._parts.cache.stored())
        self._remember(exported, found)
        await self._report(exported, found)
        if failure:
            return self._failed(failure)
        self._fault.ended()
        self._backoff.reset()
        self._parts.metrics.set_problem(exists=False)
        return _AGAIN_SECONDS

    @property
    def _usable(self) -> bool:
        """Whether a policy was loaded; the built-in one is for clusters without any."""
        state = self._parts.policies.state
        return state.loaded and not (state.failure and state.active is BUILTIN_JUDGE)

    def _failed(self, error: str, retry_after_seconds: float = 0.0) -> float:
        self._parts.metrics.set_problem(exists=True)
        if self._fault.failed(error):
            log.warning("admission policies not in sync", extra={"error": error, **self._fault.fields})
        return self._backoff.next_seconds(retry_after_seconds)

    async def _export(self) -> Export:
        """The objects of the policy in use; made in a thread, once for each policy."""
        policy, version = self._parts.policies.active.policy, await self._parts.cache.mutating_version()
        known = self._exported
        if known is not None and known[0] is policy and known[1] == version:
            return known[2]
        settings = self._parts.settings
        exported = await asyncio.to_thread(
            export_fallback,
            policy,
            protect_labels=settings.protect_labels,
            namespace=settings.namespace,
            mutating_version=version,
        )
        self._exported = policy, version, exported
        parts = [
            f"{each.name}: exported: {each.coverage}: {'; '.join(each.why)}"
            for each in (*exported.rules, *exported.beyond)
            if each.coverage is not Coverage.FULL
        ]
        fields = {"policyHash": policy.hash, "objects": len(exported.objects), "parts": parts[:_NAMED_MOST]}
        log.info("policy exported as admission policies", extra=fields)
        return exported

    # --- writing ---------------------------------------------------------------------------------

    async def _write(self, exported: Export) -> str:
        """Writes what is to be written, in order; returns what failed, or nothing."""
        stored = self._parts.cache.stored()
        edited = self._edited(exported, stored)
        steps = writes_for(exported.objects, stored, settled=self._still_settled(exported, stored))
        failures: dict[bool, str] = {}
        written: dict[AdmissionObjectKey, StoredObject | None] = {}
        for step in steps:
            family = step.key.kind.startswith(MUTATING)
            # What comes later may rely on it; so one failure leaves all of its family as it is.
            if family in failures or not self._parts.leads():
                continue
            try:
                written[step.key] = await self._parts.writer.carry_out(step)
            except ClusterError as error:
                failures[family] = f"{step.key}: {error}"
            self._count(step, done=family not in failures)
        if written:
            applied = sum(each is not None for each in written.values())
            fields = {"applied": applied, "deleted": len(written) - applied}
            log.info("admission policies written", extra={"policyHash": self._policy_hash, **fields})
            await self._put_back([key for key in edited if key in written])
            await self._seen(steps, written)
        return "; ".join(failures.values())

    def _count(self, step: FallbackWrite, *, done: bool) -> None:
        self._parts.metrics.count_write("delete" if step.wanted is None else "apply", "done" if done else "failed")

    @property
    def _policy_hash(self) -> str:
        return self._parts.policies.active.policy.hash

    async def _put_back(self, edited: Sequence[AdmissionObjectKey]) -> None:
        """Reports what was changed by others although the policy is the same."""
        if not edited:
            return
        self._parts.metrics.count_reverts(len(edited))
        names = [str(key) for key in edited]
        log.warning("admission policies were changed by hand and are put back", extra={"objects": names[:_NAMED_MOST]})
        note = f"changed by hand and put back: {', '.join(names)}"
        await self._parts.tell("AdmissionPolicyPutBack", note)

    async def _seen(
        self, steps: Iterable[FallbackWrite], written: Mapping[AdmissionObjectKey, StoredObject | None]
    ) -> None:
        """Returns once the watches show what was written, or after some seconds."""
        before = {step.key: step.stored for step in steps}

        def shown() -> bool:
            stored = self._parts.cache.stored()
            return all(_shows(stored.get(key), answer, before[key]) for key, answer in written.items())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_SECONDS):
                while not shown():
                    self._changed.clear()
                    await self._changed.wait()
        self._changed.set()  # the policy may have changed as well
        for obj in (step.wanted for step in steps if step.wanted is not None):
            answer = written.get(key_of(obj))
            if answer is not None:
                self._settled[answer.key] = _Settled(obj["spec"], answer.uid, answer.generation)

    # --- comparing -------------------------------------------------------------------------------

    def _still_settled(
        self, exported: Export, stored: Mapping[AdmissionObjectKey, StoredObject]
    ) -> set[AdmissionObjectKey]:
        """Objects that are as they were when they were settled, and wanted as they were then."""
        found = set()
        for obj in exported.objects:
            key = key_of(obj)
            known, there = self._settled.get(key), stored.get(key)
            if known is None or there is None or known.spec != obj["spec"]:
                continue
            if (known.uid, known.generation) == (there.uid, there.generation):
                found.add(key)
        return found

    def _edited(self, exported: Export, stored: Mapping[AdmissionObjectKey, StoredObject]) -> list[AdmissionObjectKey]:
        """Objects that were settled for the same policy, and are not as they were."""
        still = self._still_settled(exported, stored)
        wanted = {key_of(obj): obj["spec"] for obj in exported.objects}
        return [key for key, known in self._settled.items() if wanted.get(key) == known.spec and key not in still]

    def _compared(self, exported: Export, stored: Mapping[AdmissionObjectKey, StoredObject]) -> list[Comparison]:
        """`compare`; what an API server has made of an object by itself is no difference."""
        still = self._still_settled(exported, stored)
        return [
            each._replace(state=FallbackState.IN_SYNC, fields=())
            if each.state is FallbackState.CHANGED and each.key in still
            else each
            for each in compare(exported.objects, stored)
        ]

    def _remember(self, exported: Export, found: Iterable[Comparison]) -> None:
        """Settles what is in sync, so that a change of it is known for one; forgets what is gone."""
        stored = self._parts.cache.stored()
        wanted = {key_of(obj): obj["spec"] for obj in exported.objects}
        self._settled = {key: known for key, known in self._settled.items() if wanted.get(key) == known.spec}
        for each in found:
            there = stored.get(each.key)
            if each.state is FallbackState.IN_SYNC and there is not None:
                self._settled[each.key] = _Settled(wanted[each.key], there.uid, there.generation)

    # --- reporting -------------------------------------------------------------------------------

    async def _report(self, exported: Export, found: Sequence[Comparison]) -> None:
        """Figures; and where something has begun or ceased to differ, a log line and an Event."""
        states = Counter(each.state for each in found)
        coverages = Counter(each.coverage for each in (*exported.rules, *exported.beyond))
        self._parts.metrics.show(
            {state.value: states[state] for state in FallbackState},
            {coverage.value: coverages[coverage] for coverage in Coverage},
        )
        amiss = [str(each) for each in found if each.state in _AMISS]
        told, self._told = self._told, frozenset(amiss)
        if self._told == told:
            return
        if not amiss:
            log.info("admission policies are as the policy has them", extra={"policyHash": self._policy_hash})
            return
        log.warning("admission policies differ from the policy", extra={"objects": amiss[:_NAMED_MOST]})
        await self._parts.tell(
            "AdmissionPoliciesDiffer", f"not as policy {self._policy_hash} has them: {'; '.join(amiss)}"
        )


def _shows(there: StoredObject | None, answer: StoredObject | None, before: StoredObject | None) -> bool:
    """Whether a cache knows the answer to a write."""
    if answer is None:
        return there is None or before is None or there.uid != before.uid
    return there is not None and (
        there.resource_version == answer.resource_version or is_newer(there.resource_version, answer.resource_version)
    )
