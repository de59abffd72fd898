"""Taints that come another way, or do something else: in slices, with other effects, without a selector."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from tests.apiserver.impact.fleet import GPU, MAINT, OTHER
from tests.apiserver.impact.population import RULES, SLICES, Population
from tests.apiserver.impact.rows import Row
from tests.apiserver.impact.trial import POLL_SECONDS, SLACK_SECONDS, SOON_SECONDS, Trials
from tests.apiserver.impact.witness import Figures, Witness, condition, figures
from tests.apiserver.objects import rule_for
from tests.apiserver.policy.stage import Stage
from tests.controlplane.client import JSON_PATCH
from tests.controlplane.processes import wait_until
from webhook.api.decode import Reader
from webhook.api.rules import EVICT, decode_rule
from webhook.api.slices import decode_slice
from webhook.inventory.impact import Impact, Taint, impact_of, impact_on_devices
from webhook.inventory.pools import Evictor

Json = dict[str, Any]

AFTERWARDS: Final = Row("afterwards", "nic/4/*", OTHER)
"""It evicts one pod of the bench it is tried on."""


@pytest.fixture
def clean(telling: Stage, population: Population) -> Iterator[Population]:  # noqa: ARG001 -- the policy
    """All pods there, before and after."""
    population.settle(*population.benches.values())
    yield population
    for rule in population.client.get(RULES).items:
        population.client.delete(f"{RULES}/{rule['metadata']['name']}")
    population.settle(*population.benches.values())


def _rule(selector: Json | None, effect: str, **annotations: str) -> Json:
    return rule_for(selector, {"key": MAINT, "effect": effect}, name="other", annotations=annotations)


def _evicted_until_now(population: Population, witness: Witness) -> list[str]:
    """Whom the controller evicts for what it has been told already: it works in order, so one more rule is waited for.

    That rule's own pod is not among them.
    """
    beta = population.benches["beta"]
    last = Trials(population, witness).run(AFTERWARDS, beta)
    assert len(last.known.soon) == 1
    assert last.evicted.keys() == last.known.soon.keys()
    return [each.pod for each in witness.evictions() if each.uid not in last.evicted]


@pytest.mark.parametrize("annotations", [{}, {EVICT: "true"}], ids=["as it is", "which our worker shall carry out"])
@pytest.mark.whole
def test_no_schedule_evicts_nobody(clean: Population, witness: Witness, annotations: dict[str, str]) -> None:
    """The in-tree controller does nothing for it, in no case; that our worker will is told."""
    alpha = clean.benches["alpha"]
    manifest = _rule({"driver": alpha.driver(GPU)}, "NoSchedule", **annotations)
    before = [each.pod for each in witness.evictions()]
    _ = clean.client.create(RULES, manifest).object
    rule = decode_rule(Reader.of(manifest, []))
    taint = Taint.of_rule(rule, in_tree=True)
    impact = impact_of(clean.inventory(), rule.selector, taint, datetime.now(UTC))  # noqa: TID251 -- as in trial.py
    wait_until(lambda: bool(condition(clean.client, f"{RULES}/other")), "a condition")
    assert condition(clean.client, f"{RULES}/other")["reason"] == "OtherEffect"
    assert _evicted_until_now(clean, witness) == before
    noted = witness.noted("other").numbers
    if annotations:
        assert taint.evictor is Evictor.OURS
        assert impact.pods
        assert noted["pods"] == len(impact.pods)
    else:
        assert (taint.evictor, impact.waves) == (None, ())
        assert impact.kept
        assert (noted["pods"], noted["kept"]) == (0, len(impact.kept))


def test_a_missing_selector_evicts_nobody_and_selects_nothing_there(clean: Population, witness: Witness) -> None:
    """The controller says so itself. We count what the scheduler keeps back: every device, or none (K-5)."""
    before = [each.pod for each in witness.evictions()]
    _ = clean.client.create(RULES, _rule(None, "None")).object
    wait_until(lambda: bool(condition(clean.client, f"{RULES}/other")), "a condition")
    assert figures(condition(clean.client, f"{RULES}/other")["message"]) == Figures(0, 0, 0, 0)
    _ = clean.client.patch(f"{RULES}/other", {"spec": {"taint": {"effect": "NoExecute"}}}).object
    wait_until(lambda: condition(clean.client, f"{RULES}/other").get("reason") == "NotStarted", "the effect seen")
    assert _evicted_until_now(clean, witness) == before
    inventory = clean.inventory()
    rule = decode_rule(Reader.of(_rule(None, "NoExecute"), []))
    impact = impact_of(inventory, None, Taint.of_rule(rule, in_tree=True), datetime.now(UTC))  # noqa: TID251 -- as above
    closed = 0 if clean.facts.missing_selects_nothing else inventory.pools.device_count()
    assert (impact.devices, impact.waves) == (closed, ())
    noted = witness.noted("other").numbers
    assert (noted["devices"], noted["pods"]) == (impact.devices, 0)


def test_taints_in_a_slice_evict_those_told(clean: Population, witness: Witness) -> None:
    """Of the devices of a node, all but the last get a taint that evicts; some pods may stay for a while."""
    alpha = clean.benches["alpha"]
    name = f"{alpha.pool(2)}-{GPU}-1"
    manifest = clean.client.get(f"{SLICES}/{name}").object
    before = {each.uid for each in witness.evictions()}
    *others, last = manifest["spec"]["devices"]
    for device in others:
        device["taints"] = [{"key": MAINT, "effect": "NoExecute"}]
    last["taints"] = [{"key": MAINT, "effect": "NoSchedule"}]
    value = decode_slice(Reader.of(manifest, []))
    taints = {d.name: [Taint.of_slice(taint, in_tree=True) for taint in d.taints] for d in value.devices[:-1]}

    def impact_at(now: datetime) -> Impact:
        return impact_on_devices(clean.inventory(), (value.driver, value.pool), taints, now)

    pods = len(impact_at(datetime.now(UTC)).pods)  # noqa: TID251 -- as above

    def known() -> bool:
        _ = clean.client.replace(f"{SLICES}/{name}", manifest, dry_run=True).object
        return witness.noted(name, dry_run=True).numbers.get("pods") == pods

    wait_until(known, "the webhook knows of the pods that came last", every=POLL_SECONDS)
    told_at = datetime.now(UTC)  # noqa: TID251 -- as above
    impact = impact_at(told_at)
    soon = frozenset().union(*[wave.pods for wave in impact.waves if wave.seconds <= SOON_SECONDS])
    soon -= frozenset() if clean.facts.extended_evicted else impact.extended
    try:
        stored = clean.client.replace(f"{SLICES}/{name}", manifest).object
        noted = witness.noted(name).numbers

        def gone() -> dict[str, datetime]:
            return {each.uid: each.at for each in witness.evictions() if each.uid not in before}

        wait_until(lambda: gone().keys() >= soon, "everybody evicted", seconds=SLACK_SECONDS, every=POLL_SECONDS)
        evicted = gone()
    finally:
        changed = [{"op": "remove", "path": f"/spec/devices/{at}/taints"} for at in range(len(others) + 1)]
        _ = clean.client.patch(f"{SLICES}/{name}", changed, JSON_PATCH).object
    assert stored["spec"]["devices"][0]["taints"][0]["timeAdded"]
    assert evicted.keys() == soon
    assert soon
    assert impact.pods - soon
    assert (noted["devices"], noted["pods"], noted["now"]) == (len(others), len(impact.pods), len(impact.now))
    for wave in impact.waves:
        due = told_at + timedelta(seconds=wave.seconds - 1)
        assert all(evicted[uid] >= due for uid in wave.pods & soon)
