"""Which eviction profile a pod has, and how many may be unavailable."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World
from webhook.api.meta import LabelRequirement
from webhook.api.pods import Pod
from webhook.eviction.modes import Mode
from webhook.eviction.profiles import Profiles, deletes_at_once, max_unavailable
from webhook.policy.model import EvictionProfile, LabelMatch, NamespaceMatch, Share

LOW = EvictionProfile(priority_at_most=10)
WEB = EvictionProfile(namespaces=NamespaceMatch(names=("web",)))
BIG = EvictionProfile(device_classes=("big*",))
REST = EvictionProfile()


@pytest.mark.parametrize("first", [LOW, WEB, BIG], ids=["priority", "namespace", "class"])
@pytest.mark.parametrize(
    ("second", "given", "classes"),
    [
        pytest.param(EvictionProfile(priority_at_most=1000), pod(priority=1000), (), id="priority"),
        pytest.param(EvictionProfile(namespaces=NamespaceMatch(names=("ml",))), pod(priority=11), (), id="namespace"),
        pytest.param(EvictionProfile(device_classes=("small",)), pod(priority=11), ("small",), id="class"),
    ],
)
def test_profile_that_does_not_match_is_passed_over_and_the_next_one_looked_at(
    first: EvictionProfile, second: EvictionProfile, given: Pod, classes: tuple[str, ...]
) -> None:
    assert Profiles((first, second, REST)).of(given, None, classes).position == 1


@pytest.mark.parametrize(
    ("given", "classes", "position"),
    [
        (pod(priority=10), (), 0),
        (pod(priority=11), (), 3),
        (pod(priority=11, namespace="web"), (), 1),
        (pod(priority=11), ("big-gpu",), 2),
        (pod(priority=11), ("small", "big-gpu"), 2),
        (pod(priority=10, namespace="web"), ("big-gpu",), 0),
    ],
)
def test_first_profile_that_matches_applies(given: Pod, classes: tuple[str, ...], position: int) -> None:
    found = Profiles((LOW, WEB, BIG, REST)).of(given, None, classes)
    assert (found.position, found.settings) == (position, (LOW, WEB, BIG, REST)[position])


def test_last_profile_matches_every_pod() -> None:
    assert Profiles((LOW, LOW, LOW)).of(pod(priority=11), None).position == 2
    assert Profiles((LOW,)).of(pod(priority=11), None).position == 0


@pytest.mark.parametrize(
    ("limit", "total", "most"),
    [
        (None, 10, None),
        (0, 10, 0),
        (3, 10, 3),
        (Share(20), 10, 2),
        (Share(20), 11, 3),
        (Share(20), 1, 1),
        (Share(20), 0, 1),
        (Share(0), 10, 1),
        (Share(100), 10, 10),
    ],
)
def test_share_is_rounded_up_and_at_least_one(limit: Any, total: int, most: int | None) -> None:
    assert max_unavailable(limit, total) == most


@pytest.mark.parametrize(
    ("deletes", "seconds", "at_once"), [(True, 0.0, True), (True, 0.5, False), (False, 0.0, False), (False, 5.0, False)]
)
def test_pods_are_deleted_at_once_by_a_deadline_of_no_seconds(
    deletes: bool,  # noqa: FBT001 -- a table's
    seconds: float,
    at_once: bool,  # noqa: FBT001
) -> None:
    profile = EvictionProfile(delete_after_deadline=deletes, deadline_seconds=seconds)
    assert deletes_at_once(profile) is at_once


@pytest.mark.parametrize(
    ("labels", "position"),
    [
        ((("app", "web-1"), ("tier", "a")), 0),
        ((("app", "web-1"), ("tier", "b")), 1),
        ((("app", "api"), ("tier", "a")), 1),
        ((("tier", "a"),), 1),
        ((), 1),
    ],
    ids=["both", "another value", "another pattern", "one is missing", "none"],
)
def test_profile_for_labels_of_pods(labels: tuple[tuple[str, str], ...], position: int) -> None:
    wanted = LabelMatch((("app", "web-*"),), (LabelRequirement("tier", "In", ("a",)),))
    profiles = Profiles((structs.replace(FREE, pod_labels=wanted), FREE))
    assert profiles.of(pod("p", labels=labels), None).position == position


def test_pod_whose_labels_change_gets_another_profile() -> None:
    web = structs.replace(FREE, pod_labels=LabelMatch((("app", "web"),)), grace_seconds=100.0)
    world = World(Mode.REPLACEMENT, web, FREE)
    before = pod("p", labels=(("app", "web"),))
    world.add(claim("p"), before, rule())
    assert world.after(1) == []
    world.edit(before, labels=(("app", "api"),))
    assert world.settled() == ["p"]
