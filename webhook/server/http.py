"""`POST /validate` and `POST /mutate`: bytes in, a decision from downstairs, bytes out, metrics and a log line.

Everything a client can do wrong before there is a review is answered here; nothing about taints is known here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from time import thread_time
from typing import Any, Final, NamedTuple

from aiohttp import web

from webhook.admission.chain import mutate, policy_part, validate
from webhook.admission.config_maps import CONFIG_MAPS
from webhook.admission.context import AdmissionContext, Budget, OutOfTime, OutOfTurn
from webhook.admission.decision import ALLOWED, BREAK_GLASS, Decision, encode_failure, encode_response, encode_unchanged
from webhook.admission.policy_check import PolicyFindings
from webhook.admission.review import (
    HEAD_BYTES,
    AdmissionRequest,
    BadReview,
    TooManyValues,
    decode_review,
    decode_slice_review,
    decode_well_formed,
    request_in,
)
from webhook.api.field import Severity
from webhook.policy.match import ClusterNames
from webhook.server.bodies import ANSWERS, SELECTING, STRETCH_SECONDS, Bodies, Lane, Shed, turn_of, work_ahead
from webhook.server.responses import CLIENT_GONE, Answer, RequestRefused, failure, unfitness
from webhook.server.review_log import TRACEPARENT, Outcome, Unjudged, log_review
from webhook.server.settings import ReviewSettings
from webhook.server.state import LookUp, Misses, ReviewState
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.reviews import WOULD_DENY
from webhook.validation.kinds import KINDS

Decide = Callable[[AdmissionRequest, AdmissionContext], Decision]

log = logging.getLogger(__name__)

_PATHS: Final = {"/validate": validate, "/mutate": mutate}
_COSTLY: Final = frozenset({"resourceclaims", "resourceclaimtemplates"})
"""Resources whose reviews cost more the more rules say about each entry."""
_OK: Final = 200
_SHOWN_NAMES: Final = 3
_SHOWN_CHARACTERS: Final = 64


class _Route(NamedTuple):
    """Where a request target leads, and how long the answer may take."""

    path: str
    decide: Decide
    seconds: float


class Reviews:
    """The handler of the admission port."""

    def __init__(
        self,
        settings: ReviewSettings,
        metrics: Metrics,
        state: ReviewState | None = None,
        client_names: Iterable[str] = (),
    ) -> None:
        """`client_names`: a client's certificate must have one of them; none where no certificate is asked for."""
        self._state = state or ReviewState()
        self._client_names = frozenset(client_names)
        self._settings = settings
        self._metrics = metrics
        self._in_flight = 0
        self._lane = Lane("large-reviews", settings.buffered_limit_bytes)
        self._documents = Lane("policy-documents", settings.documents_limit_bytes)
        self._matching = asyncio.Lock()
        self._bodies = Bodies(settings)
        metrics.reviews_in_flight.set_function(lambda: self._in_flight)
        self._clock = time.monotonic
        self._turn_seconds = settings.turn_seconds
        # The same few targets come all the time: one per path and timeout.
        self._route = lru_cache(maxsize=256)(self._route_to)

    async def __call__(self, request: web.BaseRequest) -> Answer:
        """Answer one request, whatever happens."""
        self._in_flight += 1
        try:
            # The header was complete a while ago if the loop had other things to do: the caller has waited since then.
            started: float = getattr(request.protocol, "received_at", 0.0) or self._clock()
            route = self._route_of(request)
            budget = Budget(route.seconds, self._clock, started)
            content = request.content
            # Most bodies come together with their header; a timer for each would cost a tenth of the answer.
            try:
                body = content.read_nowait() if content.is_eof() else await self._bodies.receive(request, route.seconds)
                outcome = await self._review(route, body, budget)
            except Shed as shed:
                outcome = self._shed(route, shed)
            return self._finish(outcome, self._clock() - started, request.headers.get(TRACEPARENT, ""))
        except RequestRefused as refusal:
            return self._refuse(refusal)
        finally:
            self._in_flight -= 1

    def _route_of(self, request: web.BaseRequest) -> _Route:
        """Tell where a request leads. Raises RequestRefused for one that cannot be a review."""
        # Where no certificate is asked for, none is looked for: a fiftieth of a small review.
        if self._client_names:
            # The transport knows the connection's certificate since the handshake.
            transport = request.transport
            check_names(None if transport is None else transport.get_extra_info("peercert"), self._client_names)
        route = self._route(request.raw_path)
        if route is None:
            raise RequestRefused(404, "no such path: send reviews to /validate or /mutate")
        unfit = unfitness(request.method, request.headers)
        if unfit is not None:
            raise RequestRefused(*unfit, allow="POST" if unfit[0] == 405 else "")
        return route

    def _route_to(self, target: str) -> _Route | None:
        """Tell where a target leads. The answer gets a share of the caller's patience, so that it is heard."""
        path, _, query = target.partition("?")
        decide = _PATHS.get(path)
        if decide is None:
            return None
        settings = self._settings
        patience = timeout_seconds(query) or settings.default_timeout_seconds
        seconds = settings.deadline_share * min(patience, settings.longest_timeout_seconds)
        return _Route(path, decide, seconds)

    def _refuse(self, refusal: RequestRefused) -> Answer:
        self._metrics.count_bad_request(refusal.code)
        log.debug("request refused", extra={"code": refusal.code, "error": str(refusal)})
        answer = failure(400 if refusal.code == CLIENT_GONE else refusal.code, str(refusal), allow=refusal.allow)
        if refusal.code in {400, 408, 413, 429, CLIENT_GONE}:
            answer.keep_alive = False
        return answer

    async def _review(self, route: _Route, body: bytes, budget: Budget) -> Outcome:
        """Decide a review here or in a lane. Here it waits only for names that no cache knows. Raises Shed."""
        if len(body) > self._settings.body_limit_bytes:
            raise Shed(Unjudged.OVERSIZE, body[:HEAD_BYTES])
        if budget.spent:
            raise Shed(Unjudged.DEADLINE, body[:HEAD_BYTES])
        # Its size says whether it is read here, and what it costs whether it stays here.
        small = len(body) <= self._settings.large_claim_bytes
        request = _decoded(body) if small else self._read_at_once(route, body)
        if request is None:
            return await self._decide_large(route, body, budget)
        if request.resource.resource not in _COSTLY:
            return await self._decide_small(route, body, request, budget)
        try:
            return await self._decide_here(route, request, budget)
        except OutOfTurn:
            return await self._decide_large(route, body, budget)

    def _read_at_once(self, route: _Route, body: bytes) -> AdmissionRequest | None:
        """Read the request of a review if that may be done on the loop; None for one to be read in the lane.

        What is read takes many times the memory of its body, so a review that will wait is not read first.
        """
        if len(body) > self._settings.large_bytes:
            return None
        announced = request_in(body[:HEAD_BYTES])
        if announced is not None and announced.resource.resource in _COSTLY:
            return None
        in_part = announced is not None and route.decide is validate and _is_slice(announced)
        # To read what is not well-formed takes a hundred times as long.
        request = (decode_slice_review(body) if in_part else None) or decode_well_formed(body)
        return None if request is None or request.resource.resource in _COSTLY else request

    async def _decide_large(self, route: _Route, body: bytes, budget: Budget) -> Outcome:
        """Decide a large or costly review, read and judged when its turn comes. Raises Shed."""
        state = self._state
        look_up, misses = state.look_up, Misses(state.names)
        decided = await self._in_lane(route, body, budget, state.names if look_up is None else misses)
        if isinstance(decided, AdmissionRequest):
            return await self._decide_small(route, body, decided, budget)
        if look_up is None or not misses.found or decided.decision is None:
            return decided
        if not await self._look_up(look_up, misses, budget):
            return decided
        # Read again, since what is read is many times as large and must not be kept while others take their turn.
        again = await self._in_lane(route, body, budget, state.names)
        return decided if isinstance(again, AdmissionRequest) else again

    async def _in_lane(
        self, route: _Route, body: bytes, budget: Budget, names: ClusterNames
    ) -> Outcome | AdmissionRequest:
        """Decide a review when its turn comes, or return its request where the loop must decide it."""

        def work() -> Outcome | AdmissionRequest:
            read = _decoded(body, self._lane.rest)
            if read.resource.resource not in _COSTLY:
                return read  # judged by the inventory, which changes on the loop
            outcome = self._decide(route, read, budget, names, on_loop=False)
            # What is large is freed here: that takes 3 ms for 2 MB.
            return outcome._replace(request=read.without_objects())

        return await self._lane.run(work, body, budget.seconds_left)

    async def _decide_small(self, route: _Route, body: bytes, request: AdmissionRequest, budget: Budget) -> Outcome:
        """Decide a review that was read, and that is about neither a claim nor a template. Raises Shed."""
        if request.resource == CONFIG_MAPS:
            return await self._decide_apart(self._documents, route, body, request, budget)
        if route.decide is mutate and _is_slice(request) and self._state.changes_slices:
            return await self._decide_apart(self._lane, route, body, request, budget)
        budget.hurried = request.resource.resource in SELECTING
        try:
            return await self._decide_here(route, request, budget)
        except OutOfTurn:
            return await self._decide_ruled(route, body, request, budget)

    async def _decide_here(self, route: _Route, request: AdmissionRequest, budget: Budget) -> Outcome:
        """Decide a review on the loop. Look up names that no cache knows. Raises OutOfTurn."""
        state, look_up = self._state, self._state.look_up
        if look_up is None:
            return self._decide(route, request, budget, state.names)
        misses = Misses(state.names)
        outcome = self._decide(route, request, budget, misses)
        if misses.found and outcome.decision is not None:
            found = await self._look_up(look_up, misses, budget)
            # What would be assumed was counted before others were let through.
            if found or outcome.decision.assumed is not None:
                outcome = self._decide(route, request, budget, state.names)
        return outcome

    async def _decide_ruled(self, route: _Route, body: bytes, request: AdmissionRequest, budget: Budget) -> Outcome:
        """Decide a review about taints; many rules and selectors in the lane, what needs the inventory on the loop."""
        ruled: PolicyFindings | None = None

        def rule(request: AdmissionRequest, context: AdmissionContext) -> Decision:
            nonlocal ruled
            ruled = policy_part(request, context)
            return ALLOWED

        if route.decide is validate:
            outcome = await self._decide_apart(self._lane, route._replace(decide=rule), body, request, budget)
            if outcome.decision is None:
                return outcome
            route = route._replace(decide=partial(validate, ruled=ruled))
        while budget.hurried and not budget.spent:
            try:
                return await self._decide_here(route, request, budget)
            except OutOfTurn:
                budget.hurried = await work_ahead(
                    budget, self._state, self._matching, lambda work: self._lane.run(work, body, budget.seconds_left)
                )
        budget.hurried, budget.stretch_seconds = False, STRETCH_SECONDS
        return await self._decide_here(route, request, budget)

    async def _decide_apart(
        self, lane: Lane, route: _Route, body: bytes, request: AdmissionRequest, budget: Budget
    ) -> Outcome:
        """Decide what takes longer than others should wait: a policy document, selectors on many devices."""

        def work() -> Outcome:
            return self._decide(route, request, budget, self._state.names, on_loop=False)

        return await lane.run(work, body, budget.seconds_left)

    async def _look_up(self, look_up: LookUp, misses: Misses, budget: Budget) -> bool:
        """Return whether the cluster had anything new to say about names that were missing."""
        seconds = min(self._settings.look_up_seconds, budget.seconds_left / 2)
        return await look_up(frozenset(misses.namespaces), frozenset(misses.device_classes), seconds)

    def _decide(
        self,
        route: _Route,
        request: AdmissionRequest,
        budget: Budget,
        names: ClusterNames,
        *,
        on_loop: bool = True,
    ) -> Outcome:
        """Decide a review, or say why not. Raises OutOfTurn if its turn on the loop ends before."""
        if not on_loop:
            budget.end_turn()
        elif request.resource.resource in _COSTLY or (route.decide is validate and self._state.judges_taints):
            budget.take_turn(self._turn_seconds, thread_time)
        now = datetime.now(UTC)  # noqa: TID251 -- the shell asks the clock so that the core need not
        try:
            context = self._state.context(now, budget, names, inventory=on_loop)
            if request.resource.resource in SELECTING:
                with turn_of(budget, request.resource.resource, on_loop=on_loop):
                    decision = route.decide(request, context)
            else:
                decision = route.decide(request, context)
            return Outcome(route.path, request, decision, decision.code, encode_response(request, decision))
        except OutOfTurn:
            raise
        except OutOfTime as spent:
            text = f"time ran out before {spent.phase}: try again, or send less"
            return _undecided(route, request, 504, text, Unjudged.DEADLINE)
        except Exception as error:  # noqa: BLE001 -- a fault of ours is an answer too; it is counted and logged
            text = "internal error: the webhook's log has the traceback"
            return _undecided(route, request, 500, text, Unjudged.FAULT, error)

    def _assume(self, decision: Decision, request: AdmissionRequest, *, last_look: bool) -> None:
        """Have later reviews count what was allowed."""
        if last_look:
            self._state.assumed_rules.validated(request.username)
        if decision.assumed is None:
            return
        inventory = None if self._state.sight is None else self._state.sight().inventory
        names = [rule.meta.name for rule in decision.assumed.rules]
        if request.operation == "CREATE" and inventory is not None and any(each in inventory.rules for each in names):
            return  # an API server answers AlreadyExists, as some operators have it do each time
        self._state.assumed_rules.add(decision.assumed, request.username, last_look=last_look)

    def _finish(self, outcome: Outcome, seconds: float, traceparent: str) -> Answer:
        """Count the outcome, log it with the caller's trace, and return its answer."""
        metrics, request, decision = self._metrics, outcome.request, outcome.decision
        resource = request.resource.resource
        if outcome.fault is not None:
            metrics.panics.labels(metrics.known(resource)).inc()
        if outcome.unjudged and outcome.passed:
            metrics.reviews_passed_unjudged.labels(metrics.known(resource), outcome.unjudged).inc()
        metrics.count_review(outcome.path, resource, request.operation, outcome.code, seconds)
        if decision is not None:
            if not request.dry_run and resource in SELECTING:
                self._assume(decision, request, last_look=outcome.path == "/validate")
            if decision.softened and not request.dry_run:
                metrics.softened_rules.inc()
            if decision.hits:
                metrics.policy.count(decision.hits)
            if decision.findings or decision.broke_glass:
                self._count_findings(request, decision)
            for difference in decision.differences:
                metrics.policy.count_difference(difference.rule, difference.change)
        # What simply passed is for the verbose only; to put its line together in vain would cost a thirtieth.
        logged = decision is None or decision.findings or decision.patch or decision.differences
        if logged or outcome.code != _OK or log.isEnabledFor(logging.DEBUG):
            log_review(log, outcome, seconds, traceparent)
        return Answer(outcome.reply)

    def _count_findings(self, request: AdmissionRequest, decision: Decision) -> None:
        """Count each of them, and the review as a whole where it would have been refused."""
        metrics, policy = self._metrics, self._metrics.policy
        for finding in decision.findings:
            policy.count_finding(finding.name, WOULD_DENY if finding.turned_down else finding.severity.value)
        if decision.broke_glass:
            policy.count_finding(BREAK_GLASS, Severity.WARN.value)
        if decision.turned_down:
            metrics.reviews_turned_down.labels(metrics.known(request.resource.resource)).inc()

    def _shed(self, route: _Route, shed: Shed) -> Outcome:
        """Answer a review that is not judged: refuse it, since a caller without an answer may let it pass."""
        code, text = ANSWERS[shed.reason]
        request = request_in(shed.head)
        if request is None:
            # There is no uid to answer to.
            raise self._bodies.too_large() if shed.reason is Unjudged.OVERSIZE else RequestRefused(429, text)
        self._metrics.reviews_shed.labels(shed.reason).inc()
        return _undecided(route, request, code, text, shed.reason)._replace(shed=shed.reason.value)


def _decoded(body: bytes, rest: Callable[[], None] | None = None) -> AdmissionRequest:
    try:
        return decode_review(body, rest)
    except TooManyValues:
        raise Shed(Unjudged.OVERSIZE, body[:HEAD_BYTES]) from None
    except BadReview as error:
        raise RequestRefused(400, str(error)) from None


def _undecided(
    route: _Route, request: AdmissionRequest, code: int, message: str, why: Unjudged, fault: Exception | None = None
) -> Outcome:
    """Make the answer without a decision.

    Judging fails closed, as no other webhook judges the object; defaulting fails open, as the object is whole without.
    A ResourceSlice passes: a driver whose slice is refused loses its devices, which is worse than any taint in it. One
    that is larger than any API server stores is refused all the same.
    """
    judging = route.decide is not mutate
    passes = not judging or (why is not Unjudged.OVERSIZE and _is_slice(request))
    if not passes:
        reply = encode_failure(request.uid, code, message)
    else:
        reply = encode_unchanged(request.uid, f"not judged: {message}" if judging else message)
    return Outcome(route.path, request, None, code, reply, fault, unjudged=why if judging else None, passed=passes)


def _is_slice(request: AdmissionRequest) -> bool:
    row = KINDS.get(request.resource)
    return row is not None and row.kind == "ResourceSlice"


def check_names(certificate: Mapping[str, Any] | None, names: frozenset[str]) -> None:
    """Check that a certificate, as `SSLSocket.getpeercert` gives it, has a common or DNS name that is in `names`.

    Raises RequestRefused: every client of the right CA has a certificate, but only API servers have such a name.
    """
    certificate = certificate or {}
    # Asked for each review, so a list: a generator takes twice the time.
    found = [text for each in certificate.get("subject", ()) for kind, text in each if kind == "commonName"]
    if "subjectAltName" in certificate:
        found += [text for kind, text in certificate["subjectAltName"] if kind == "DNS"]
    if names.isdisjoint(found):
        shown = ", ".join(ascii(name[:_SHOWN_CHARACTERS]) for name in found[:_SHOWN_NAMES]) or "no name"
        text = (
            f"the client certificate is for {shown}, which is not in --client-names: only API servers send reviews here"
        )
        raise RequestRefused(403, text)


# Go's time.Duration as its String() prints it: the API server sends `timeout=10s`.
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:h|m|s|ms|us|µs|ns))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(h|ms|us|µs|ns|m|s)", re.ASCII)
_UNIT_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def timeout_seconds(query: str) -> float | None:
    """Return how long the caller waits; None if the query does not say, or names no positive duration of Go."""
    for parameter in query.split("&"):
        name, _, text = parameter.partition("=")
        if name == "timeout":
            if len(text) > 32 or not _DURATION.fullmatch(text):
                return None
            return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text)) or None
    return None
