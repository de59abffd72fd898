"""What slices had a short while ago, and what a review sees of the state, beside what others test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from tests.builders import NOW, NOW_TEXT, decoded, make_claim, make_device, make_slice, make_taint
from tests.unit.server.doubles import Clock
from webhook.admission.context import UNLIMITED
from webhook.cluster.cache.decoders import SliceWire
from webhook.inventory.impact import KnownPods
from webhook.inventory.state import Inventory, Sight
from webhook.policy.match import NO_NAMES
from webhook.policy.model import BUILTIN
from webhook.server import state as module
from webhook.server.state import TAINTS_KEPT_SECONDS, RecentTaints, ReviewState

if TYPE_CHECKING:
    from webhook.api.slices import ResourceSlice
    from webhook.policy.model import Policy

BROKEN: Final = make_taint(effect="NoExecute", timeAdded=NOW_TEXT)
IDENTITY: Final = ("gpu-0", BROKEN["key"], BROKEN.get("value", ""))


def a_slice(*taints: Any, pool: str = "node-0") -> ResourceSlice:
    manifest = make_slice([make_device("gpu-0", taints)])
    manifest["spec"]["pool"]["name"] = pool
    return msgspec.json.decode(json.dumps(manifest), type=SliceWire).to_value()  # as a watch brings it


def had(recent_taints: RecentTaints, pool: str = "node-0") -> bool:
    return recent_taints.had(a_slice().driver, pool, IDENTITY)


@pytest.mark.parametrize("gone", ["taint", "slice", "pool", "effect"])
def test_what_is_gone_is_remembered_for_its_time(gone: str) -> None:
    time = Clock()
    recent_taints = RecentTaints(time)
    after = {
        "taint": a_slice(),
        "slice": None,
        "pool": a_slice(BROKEN, pool="elsewhere"),
        "effect": a_slice({**BROKEN, "effect": "NoSchedule"}),
    }[gone]
    recent_taints.observe(a_slice(BROKEN), after)
    assert had(recent_taints)
    assert not had(recent_taints, "elsewhere")
    time.seconds += TAINTS_KEPT_SECONDS
    assert had(recent_taints)
    time.seconds += 1.0
    assert not had(recent_taints)


def test_what_stays_or_comes_is_not_gone() -> None:
    recent_taints = RecentTaints(Clock())
    recent_taints.observe(None, a_slice(BROKEN))
    recent_taints.observe(a_slice(), a_slice(BROKEN))
    recent_taints.observe(a_slice(BROKEN), a_slice(BROKEN))
    recent_taints.observe(a_slice({**BROKEN, "effect": "NoSchedule"}), a_slice())
    recent_taints.observe(decoded(make_claim())[0], None)
    assert not had(recent_taints)


def test_of_too_many_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TAINTS_KEPT_MOST", 2)
    recent_taints = RecentTaints(Clock())
    for pool in ("node-0", "node-1", "node-0", "node-2"):
        recent_taints.observe(a_slice(BROKEN, pool=pool), None)
    assert [had(recent_taints, f"node-{number}") for number in range(3)] == [True, False, True]


WITHOUT_CLUSTER = "this webhook runs without a cluster, so it cannot see whether API servers prove authors"
KNOWN = KnownPods(lambda _: None, lambda _: None, {})


def test_pods_are_seen_under_the_policy_in_use_and_only_with_an_inventory() -> None:
    asked: list[Policy] = []

    def pods(policy: Policy) -> KnownPods:
        asked.append(policy)
        return KNOWN

    state = ReviewState(sight=lambda: Sight(Inventory()), pods=pods)
    assert state.context(NOW, UNLIMITED, NO_NAMES).pods is KNOWN
    assert asked == [BUILTIN]
    assert state.context(NOW, UNLIMITED, NO_NAMES, inventory=False).pods is None
    assert ReviewState(pods=pods).context(NOW, UNLIMITED, NO_NAMES).pods is None
    assert ReviewState(sight=lambda: Sight(Inventory())).context(NOW, UNLIMITED, NO_NAMES).pods is None


def test_without_a_cluster_no_author_is_proved_and_a_review_says_why() -> None:
    assert ReviewState().context(NOW, UNLIMITED, NO_NAMES).authors_unproved == WITHOUT_CLUSTER
