"""Reads policy documents and writes the policy store: a good document takes over, a bad one changes nothing.

Documents are read in a thread, so that reviews are answered at the same time. If several are offered while one is
read, only the newest is read next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path as FilePath
from typing import Final, NamedTuple

from webhook.admission.config_maps import CANDIDATE_KEY, POLICY_KEY, missing_policy, unreadable_candidate
from webhook.admission.rulings import EXPIRY_WARNING
from webhook.api.field import FieldError, Path
from webhook.api.meta import format_time
from webhook.files import text_of
from webhook.flowcontrol.loop import Again, LastingFault, Loop
from webhook.policy.decide import BUILTIN_JUDGE, Judge, PolicyStore
from webhook.policy.document import Loaded
from webhook.policy.model import DEFAULT_RULE, Policy
from webhook.telemetry.reviews import PolicyMetrics

Read = Callable[[str, Path], Loaded]


log = logging.getLogger(__name__)

_LOGGED_ERRORS: Final = 16
_REMINDER_SECONDS: Final = 600.0
_COMPLAINT_SECONDS: Final = 60.0
"""How often to check whether a policy that cannot be used has to be logged again."""
_FILE_POLL_SECONDS: Final = 0.5
"""How often a policy file is read: a change is in use within a second."""
_DATA: Final = Path.root().child("data")


class _Result(NamedTuple):
    """What reading a document gave: a judge, or errors."""

    judge: Judge | None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class _Offer(NamedTuple):
    """The content of a ConfigMap, or of none; a file is offered as if it were in one."""

    data: Mapping[str, str] | None = None
    """None if there is no ConfigMap."""
    binary_keys: frozenset[str] = frozenset()

    def text(self, key: str) -> str | FieldError | None:
        """Return the document under a key, why there is none although there should be, or None if none is asked for."""
        if self.data is None:
            return None
        text = self.data.get(key)
        if text is not None:
            return text
        if key == POLICY_KEY:
            return missing_policy(self.data, self.binary_keys)
        return unreadable_candidate(self.binary_keys)


class PolicyLoader:
    """A reader of the documents that it is offered, which puts those that are good into the store."""

    def __init__(
        self,
        policies: PolicyStore,
        metrics: PolicyMetrics,
        read: Read,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns seconds that only go forward."""
        self._policies = policies
        self._metrics = metrics
        self._read = read
        self._offered: _Offer | None = None
        self._loop = Loop(self._look)
        self._fault = LastingFault(clock)
        self._complaint: tuple[str, dict[str, object]] | None = None
        self._texts: dict[str, str | FieldError | None] = {}
        self._reminded: set[tuple[str, datetime]] = set()
        self.why_unread: Callable[[], str] = lambda: ""
        """Returns why no document was offered yet, if that is known, else an empty text."""
        self.record: Callable[[str, str, str], None] = lambda _reason, _action, _note: None
        """Gets reason, action and note of an Event if a document cannot be used or an exception expires soon."""
        self.loaded = asyncio.Event()
        """Set once the first offer was read, whether it could be used or not."""

    @property
    def problem(self) -> str | None:
        """Why reviews cannot be answered yet."""
        if self.loaded.is_set():
            return None
        why = self.why_unread()
        return f"the policy has not been read yet: {why}" if why else "the policy has not been read yet"

    def offer(self, data: Mapping[str, str] | None, binary_keys: Collection[str] = ()) -> None:
        """Offer the documents as they are now, by key; None if there is no ConfigMap. Returns at once.

        `binary_keys` are those of binaryData. A ConfigMap without a document in `policy.yaml` is a broken policy.
        """
        self._offered = _Offer(data, frozenset(binary_keys))
        self._loop.wake()

    def remind(self, now: datetime) -> None:
        """Log exceptions that expire within a week: each once, and again if its expiry changes."""
        for exception in self._policies.active.policy.exceptions:
            left = exception.expires_at - now
            if timedelta() < left <= EXPIRY_WARNING and (exception.name, exception.expires_at) not in self._reminded:
                self._reminded.add((exception.name, exception.expires_at))
                until = format_time(exception.expires_at)
                fields = {"exception": exception.name, "expiresAt": until, "owner": exception.owner}
                log.warning("policy exception expires soon", extra=fields)
                note = f"exception {exception.name} expires at {until}; owner: {exception.owner}"
                self.record("ExceptionEndsSoon", "RemindOfException", note)

    def unreadable(self, why: str) -> None:
        """Report a policy file that cannot be read; the current policy stays in use."""
        self._metrics.load_success = False
        self._complaint = "policy cannot be read; the current policy stays in use", {"error": why}
        self.complain()
        self._texts.pop(POLICY_KEY, None)
        self._policies.reject(why)
        self._update_metrics()
        self.loaded.set()

    @property
    def _in_use(self) -> str:
        return self._policies.active.policy.hash

    def complain(self) -> None:
        """Log why the policy last written is not in use, if that is new or was logged five minutes ago."""
        if self._complaint is not None and self._fault.failed(str(self._complaint)):
            message, fields = self._complaint
            log.error(message, extra={**fields, "policyHash": self._in_use, **self._fault.fields})

    async def run(self) -> None:
        """Read what is offered, until it is cancelled."""
        await self._loop.run()

    async def _look(self) -> Again:
        offer, self._offered = self._offered, None
        if offer is None:
            self.complain()
        else:
            await self._take(offer)
            self.loaded.set()
        return Again(_COMPLAINT_SECONDS)

    async def _take(self, offer: _Offer) -> None:
        changed = False
        for key in (POLICY_KEY, CANDIDATE_KEY):
            text = offer.text(key)
            if key in self._texts and self._texts[key] == text:
                continue
            self._texts[key] = text
            changed = True
            result = await self._result_of(key, text)
            if key == POLICY_KEY:
                self._use(result)
            else:
                self._try(result)
        if changed:
            self._update_metrics()

    async def _result_of(self, key: str, text: str | FieldError | None) -> _Result | None:
        """Read a document; None if none is asked for."""
        if text is None:
            return None
        if isinstance(text, str):
            return await asyncio.to_thread(self._judge, key, text)
        return _Result(None, (str(text),))

    def _judge(self, key: str, text: str) -> _Result:
        try:
            loaded = self._read(text, _DATA.key(key))
            judge = None if loaded.policy is None else Judge(loaded.policy)
        except Exception as error:
            # One document must not end a process that answers reviews.
            log.exception("policy cannot be read because of an internal error", extra={"key": key})
            return _Result(None, (f"internal error: {error}",))
        return _Result(judge, tuple(map(str, loaded.errors)), tuple(map(str, loaded.warnings)))

    def _use(self, result: _Result | None) -> None:
        self._complaint = None
        self._fault.ended()
        if result is None:
            self._metrics.load_success = True
            lost, builtin = self._in_use, BUILTIN_JUDGE.policy.hash
            if lost == builtin:
                log.info("no policy found: the built-in policy is in use", extra={"policyHash": builtin})
            else:
                log.warning(
                    "policy deleted: the built-in policy is in use",
                    extra={"policyHash": builtin, "lastPolicyHash": lost},
                )
                note = f"policy {lost} was deleted: the built-in one is in use, which allows every toleration"
                self.record("PolicyDeleted", "LoadPolicy", note)
            self._policies.use(BUILTIN_JUDGE)
        elif result.judge is None:
            self._metrics.load_success = False
            kept = self._in_use
            errors = list(result.errors[:_LOGGED_ERRORS])
            self._complaint = "policy not loaded; the current policy stays in use", {"errors": errors}
            self.complain()
            note = f"policy not loaded, {kept} stays in use: {'; '.join(errors)}"
            self.record("PolicyNotLoaded", "LoadPolicy", note)
            self._policies.reject(result.errors[0] if result.errors else "unusable")
        else:
            self._metrics.load_success = True
            log.info("policy in use", extra=_about(result))
            self._policies.use(result.judge)

    def _try(self, result: _Result | None) -> None:
        if result is None:
            self._metrics.candidate_load_success = None
            self._policies.use_candidate(None)
        elif result.judge is None:
            self._metrics.candidate_load_success = False
            errors = list(result.errors[:_LOGGED_ERRORS])
            log.error("candidate policy not loaded", extra={"errors": errors})
            self.record("PolicyNotLoaded", "LoadPolicy", f"candidate policy not loaded: {'; '.join(errors)}")
        else:
            self._metrics.candidate_load_success = True
            log.info("candidate policy loaded", extra=_about(result))
            self._policies.use_candidate(result.judge)

    def _update_metrics(self) -> None:
        policy, candidate = self._policies.active.policy, self._policies.candidate
        self._metrics.hash, self._metrics.mode = policy.hash, policy.mode.value
        self._metrics.paused_until = policy.pause.until.timestamp() if policy.pause else 0.0
        self._metrics.use(_names(policy), [] if candidate is None else _names(candidate.policy))
        self._metrics.exceptions = {entry.name: entry.expires_at.timestamp() for entry in policy.exceptions}


def _names(policy: Policy) -> Iterator[str]:
    yield DEFAULT_RULE
    for rule in (*policy.rules, *policy.taint_rules):
        yield rule.name
    for exception in policy.exceptions:
        yield exception.name


def _about(result: _Result) -> dict[str, object]:
    assert result.judge is not None
    about: dict[str, object] = {"policyHash": result.judge.policy.hash, "rules": len(result.judge.policy.rules)}
    if result.warnings:
        about["warnings"] = list(result.warnings[:_LOGGED_ERRORS])
    return about


async def watch_file(path: FilePath, loader: PolicyLoader) -> None:
    """Offer a policy file's text whenever it changes; a file that cannot be read leaves the last one in use.

    The content is compared, not the time stamp: editors and mounted ConfigMaps replace files in many ways. A pipe or
    device in its place cannot be read either, so that the watch goes on with the file that comes next.
    """
    known: str | None = None
    while True:
        try:
            text = await asyncio.to_thread(text_of, path)
        except (OSError, ValueError) as error:
            known = None
            loader.unreadable(str(error))
        else:
            if text != known:
                known = text
                loader.offer({POLICY_KEY: text})
        await asyncio.sleep(_FILE_POLL_SECONDS)


async def remind(loader: PolicyLoader, now: Callable[[], datetime]) -> None:
    """Look for exceptions that expire within a week, every ten minutes."""
    while True:
        loader.remind(now())
        await asyncio.sleep(_REMINDER_SECONDS)
