"""One rule tried: what is told of it first, and what the in-tree controller then makes of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tests.apiserver.impact.fleet import VERSION, Bench
from tests.apiserver.impact.population import RULES, Population
from tests.apiserver.impact.rows import BENCH_ROWS, FLEET_ROWS, Row
from tests.apiserver.impact.witness import Figures, Noted, Witness, condition, figures, pending
from tests.controlplane.processes import NotReadyError, wait_until
from webhook.api.decode import Reader
from webhook.api.meta import format_time
from webhook.api.rules import decode_rule
from webhook.inventory.impact import Impact, Taint, impact_of
from webhook.inventory.state import Inventory

Json = dict[str, Any]

SOON_SECONDS: Final = 15
"""Whoever is due in this time is waited for; the others must stay until the end of the trial."""
SLACK_SECONDS: Final = 180.0
"""For the controller to do what is due, on a machine that is busy with something else."""
AGREED_WITHIN_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.2
"""Four trials run at a time, and the control plane has the same two cores."""


class Told(NamedTuple):
    """What is said of a rule before it acts."""

    impact: Impact
    at: datetime
    impact_at: Callable[[datetime], Impact]
    """What it is at another time, of the same inventory."""
    time_added: str
    """As it is sent; empty leaves it to the API server."""
    shared: frozenset[str]
    """Claims of those pods that several pods use, as namespace/name."""
    spared: frozenset[str]
    """Pods with claims to selected devices that stay all the same."""
    left_alone: frozenset[str]
    """Pods that count, and that the controller of this release leaves alone: those with extended resources."""

    @property
    def soon(self) -> dict[str, datetime]:
        """When they are due at the earliest, of the pods that are waited for."""
        waves = [wave for wave in self.impact.waves if wave.seconds <= SOON_SECONDS]
        due = {uid: self.at + timedelta(seconds=wave.seconds) for wave in waves for uid in wave.pods}
        return {uid: at for uid, at in due.items() if uid not in self.left_alone}

    def figures(self, namespace_of: dict[str, str]) -> Figures:
        """The numbers that the in-tree controller gives."""
        pods = self.impact.pods - self.left_alone
        places = {namespace_of[uid] for uid in pods}
        return Figures(self.impact.devices, self.impact.allocated, len(pods), len(places))


@dataclass
class Outcome:
    """What came of a rule."""

    row: Row
    uids: dict[tuple[str, str], str]
    """All pods of the benches it was tried on, by namespace and name."""
    told: Told | None = None
    ours: Figures | None = None
    expected: Figures | None = None
    """What the controller is to say, while the effect is None."""
    theirs: Figures | None = None
    """What the controller said itself, while the effect was None."""
    noted_first: Noted | None = None
    """What the webhook noted of it then, in the audit log; and when it was given its effect."""
    noted: Noted | None = None
    noted_by: datetime | None = None
    """It had noted the latter by then."""
    asked: int = 0
    """How often it was asked until it had seen what we have."""
    evicted: dict[str, datetime] = field(default_factory=dict)
    """By uid."""
    expected_message: str = ""
    message: str = ""
    """What it said in the end, where pods were still to go."""
    seconds: float = 0.0
    error: BaseException | None = None

    @property
    def known(self) -> Told:
        """What was told; whatever went wrong before is raised here."""
        if self.error is not None:
            raise self.error
        assert self.told is not None
        return self.told

    @property
    def agreed(self) -> bool:
        """Whether all give the same four numbers for the rule without effect."""
        return (
            self.theirs == self.expected
            and self.noted_first is not None
            and noted_figures(self.noted_first) == self.ours
        )

    def names(self, uids: frozenset[str] | set[str]) -> list[str]:
        """Those pods as people know them."""
        by_uid = {uid: "/".join(key) for key, uid in self.uids.items()}
        return sorted(by_uid.get(uid, uid) for uid in uids)


class Trials:
    """Tries rules on a population."""

    def __init__(self, population: Population, witness: Witness) -> None:
        self._population = population
        self._client = population.client
        self._witness = witness

    def all(self) -> dict[Row, Outcome]:
        """All rows: those for one bench four at a time, then the others."""
        benches = list(self._population.benches.values())
        shares = [(bench, BENCH_ROWS[number :: len(benches)]) for number, bench in enumerate(benches)]
        with ThreadPoolExecutor(len(benches)) as pool:
            done = pool.map(lambda share: [self.run(row, share[0]) for row in share[1]], shares)
            outcomes = [outcome for each in done for outcome in each]
        outcomes += [self.run(row, *benches) for row in FLEET_ROWS]
        return {outcome.row: outcome for outcome in outcomes}

    def run(self, row: Row, *benches: Bench) -> Outcome:
        """One of them, on benches whose pods are all there when it begins."""
        before = time.monotonic()
        outcome = Outcome(row, {})
        rule = self._make_rule(row, benches[0])
        url = f"{RULES}/{rule['metadata']['name']}"
        try:
            outcome.uids = self._population.settle(*benches)
            self._ask(outcome, rule, url)
            self._act(outcome, rule, url)
        except Exception as e:  # noqa: BLE001 -- it is the row's result, and raised where that is looked at
            outcome.error = e
        finally:
            self._client.delete(url)
        outcome.seconds = time.monotonic() - before
        return outcome

    def _make_rule(self, row: Row, bench: Bench) -> Json:
        name = "".join(letter if letter.isalnum() else "-" for letter in f"{bench.name} {row.name}".lower())
        taint = {"key": row.key, "effect": "None"} | ({"value": row.value} if row.value else {})
        spec = {"deviceSelector": row.selector(bench), "taint": taint}
        return {"apiVersion": VERSION, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}

    def _ask(self, outcome: Outcome, rule: Json, url: str) -> None:
        """Without effect first: the controller works its numbers out once, from what it has seen by then.

        The webhook tells at once, likewise. So they are asked anew until they have seen what the API server holds; if
        their numbers are others, that stays so.
        """
        told = self._tell(rule, outcome.row.added)
        outcome.ours = figures_of(told.impact)
        outcome.expected = told.figures({uid: namespace for (namespace, _), uid in outcome.uids.items()})
        deadline = time.monotonic() + AGREED_WITHIN_SECONDS
        while not outcome.asked or (not outcome.agreed and time.monotonic() < deadline):
            self._client.delete(url)
            _ = self._client.create(RULES, rule).object
            said = self._wait_condition(url)
            assert said["reason"] == "NoEffect", said
            outcome.theirs = figures(said["message"])
            outcome.noted_first = self._witness.noted(rule["metadata"]["name"])
            outcome.asked += 1

    def _act(self, outcome: Outcome, rule: Json, url: str) -> None:
        """Now in earnest. Some pods are waited for; if others are due much later, the controller shall say so."""
        told = outcome.told = self._tell(rule, outcome.row.added)
        changed = {"effect": "NoExecute"} | ({"timeAdded": told.time_added} if told.time_added else {})
        _ = self._client.patch(url, {"spec": {"taint": changed}}).object
        outcome.noted_by = datetime.now(UTC)  # noqa: TID251 -- as in _tell
        outcome.noted = self._witness.noted(rule["metadata"]["name"])
        soon = told.soon
        latest = max(soon.values(), default=told.at)
        left = (latest - told.at).total_seconds() + SLACK_SECONDS

        def gone() -> bool:
            outcome.evicted = self._evicted_of(outcome)
            return outcome.evicted.keys() >= soon.keys()

        later = told.impact.pods - told.left_alone - soon.keys()
        try:
            wait_until(gone, "everybody evicted who is due soon", seconds=left, every=POLL_SECONDS)
            if later or not soon:
                outcome.expected_message = self._expected_message(outcome, later)
                self._wait_message(outcome, url)
        except NotReadyError as e:
            outcome.error = e
        outcome.evicted = self._evicted_of(outcome)

    def _expected_message(self, outcome: Outcome, later: frozenset[str]) -> str:
        places = {namespace for (namespace, _), uid in outcome.uids.items() if uid in later}
        return pending(len(later), len(places), len(outcome.evicted))

    def _wait_message(self, outcome: Outcome, url: str) -> None:
        """It says something new every ten seconds at most (E-37)."""

        def said() -> bool:
            outcome.message = condition(self._client, url).get("message", "nothing")
            return outcome.message == outcome.expected_message

        wait_until(said, f"{outcome.expected_message!r}", seconds=SLACK_SECONDS, every=POLL_SECONDS)

    def _wait_condition(self, url: str) -> Json:
        said: Json = {}

        def there() -> bool:
            said.update(condition(self._client, url))
            return bool(said)

        wait_until(there, f"a condition of {url}", seconds=SLACK_SECONDS)
        return said

    def _evicted_of(self, outcome: Outcome) -> dict[str, datetime]:
        """Who of these pods was evicted: each of them had to be there for the trial to begin."""
        ours = set(outcome.uids.values())
        return {each.uid: each.at for each in self._witness.evictions() if each.uid in ours}

    def _tell(self, rule: Json, added: int | None) -> Told:
        """What our code says of the rule, were its effect NoExecute from now on."""
        inventory, now = self._population.inventory(), datetime.now(UTC)  # noqa: TID251 -- by which pods are evicted
        time_added = "" if added is None else format_time(now + timedelta(seconds=added))
        taint = {**rule["spec"]["taint"], "effect": "NoExecute", "timeAdded": time_added or None}
        value = decode_rule(Reader.of({**rule, "spec": {**rule["spec"], "taint": taint}}, []))
        impact_at = functools.partial(impact_of, inventory, value.selector, Taint.of_rule(value, in_tree=True))
        impact = impact_at(now)
        users = _users(inventory, rule["spec"]["deviceSelector"])
        consumers = frozenset().union(*users.values())
        shared = frozenset(key for key, uids in users.items() if len(uids) > 1 and uids & impact.pods)
        left_alone = frozenset[str]() if self._population.facts.extended_evicted else impact.extended
        return Told(impact, now, impact_at, time_added, shared, consumers - impact.pods, left_alone)


def _users(inventory: Inventory, selector: Json) -> dict[str, frozenset[str]]:
    """Who uses the selected devices, by claim: looked up one by one."""
    return {
        key: frozenset(consumer.uid for consumer in claim.reserved_for)
        for key, claim in inventory.claims.items()
        if any(
            all(getattr(result, name) == wanted for name, wanted in selector.items())
            for result in claim.allocation or ()
        )
    }


def noted_figures(noted: Noted) -> Figures | None:
    """The same from the audit log; None if nothing was noted."""
    names = ("devices", "allocated", "pods", "namespaces")
    return Figures(*[noted.numbers[name] for name in names]) if noted.numbers else None


def figures_of(impact: Impact) -> Figures:
    """Our numbers in the words of the in-tree controller."""
    return Figures(impact.devices, impact.allocated, len(impact.pods), len(impact.namespaces))
