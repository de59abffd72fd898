"""Which eviction profile a pod has, how many may be unavailable, and what profiles say of pods."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule
from tests.unit.eviction.world import FREE, World
from webhook.api.meta import LabelRequirement
from webhook.api.pods import Owner, Pod
from webhook.eviction.followed_pods import FollowedPods, ProfiledPods
from webhook.eviction.modes import Mode
from webhook.eviction.profiles import Profiles, deletes_at_once, max_unavailable
from webhook.inventory.gangs import Gang
from webhook.inventory.preview import OutcomeReason
from webhook.inventory.state import Inventory
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import EvictionProfile, LabelMatch, NamespaceMatch, Policy, Share

LOW = EvictionProfile(priority_at_most=10)
WEB = EvictionProfile(namespaces=NamespaceMatch(names=("web",)))
BIG = EvictionProfile(device_classes=("big*",))
ML = EvictionProfile(namespaces=NamespaceMatch(names=("ml",)))
REST = EvictionProfile()


@pytest.mark.parametrize(
    ("given", "classes", "position"),
    [
        (pod(priority=10), (), 0),
        (pod(priority=11, namespace="other"), (), 4),
        (pod(priority=11), (), 3),
        (pod(priority=11), ("small",), 3),
        (pod(priority=11, namespace="web"), (), 1),
        (pod(priority=11), ("big-gpu",), 2),
        (pod(priority=11), ("small", "big-gpu"), 2),
        (pod(priority=10, namespace="web"), ("big-gpu",), 0),
    ],
)
def test_first_profile_that_matches_applies(given: Pod, classes: tuple[str, ...], position: int) -> None:
    profiles = (LOW, WEB, BIG, ML, REST)
    found = Profiles(profiles).of(given, None, classes)
    assert (found.position, found.settings) == (position, profiles[position])


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


# --- what profiles say of pods: their gang, and whether they are skipped --------------------------


RING = "example.com/ring"
JOB = Gang("Job", "ml", "rs", "uid-rs")
BY_OWNER = EvictionProfile(gang_by_owner=True)
IN_A_JOB = owned("a", kind="Job", labels=((RING, "r"),))


def pods(*profiles: EvictionProfile, labels: dict[str, str] | None = None) -> ProfiledPods:
    facts = None if labels is None else (lambda name: NamespaceFacts(name, labels))
    return ProfiledPods(Inventory(), profiles) if facts is None else ProfiledPods(Inventory(), profiles, facts)


@pytest.mark.parametrize(
    ("profile", "gang"),
    [(EvictionProfile(), None), (BY_OWNER, JOB), (EvictionProfile(gang_labels=(RING,)), Gang(RING, "ml", "r"))],
)
def test_gang_is_that_of_the_profile(profile: EvictionProfile, gang: Gang | None) -> None:
    assert pods(profile).gang_of(IN_A_JOB) == gang


@pytest.mark.parametrize(("labels", "gang"), [(None, None), ({"tier": "batch"}, JOB), ({"tier": "web"}, None)])
def test_labels_of_namespaces_count_where_they_are_known(labels: dict[str, str] | None, gang: Gang | None) -> None:
    batch = EvictionProfile(namespaces=NamespaceMatch(labels=(("tier", "batch"),)), gang_by_owner=True)
    assert pods(batch, EvictionProfile(), labels=labels).gang_of(IN_A_JOB) == gang


@pytest.mark.parametrize(
    ("each", "profile", "reason"),
    [
        (pod(), EvictionProfile(), None),
        (pod(mirror=True), EvictionProfile(), OutcomeReason.MIRROR_POD),
        (pod(owner=Owner("DaemonSet", "d", "u")), EvictionProfile(), OutcomeReason.DAEMON_SET),
        (pod(owner=Owner("DaemonSet", "d", "u")), EvictionProfile(evict_daemon_sets=True), None),
        (pod(), EvictionProfile(skips=True), OutcomeReason.ACTION_SKIP),
    ],
)
def test_pods_that_the_worker_skips(each: Pod, profile: EvictionProfile, reason: OutcomeReason | None) -> None:
    assert pods(profile).exemption_of(each) is reason


# --- followed -----------------------------------------------------------------------------------


def test_followed_pods_are_counted_under_each_policy() -> None:
    inventory = Inventory()
    followed = FollowedPods(inventory, lambda _: None)
    for each in (IN_A_JOB, owned("b", kind="Job"), claim("a")):
        inventory.apply(None, each)
        followed.observe(None, each)
    plain = followed.under(Policy())
    assert plain.sizes[JOB] == 2
    assert plain.gang_of(IN_A_JOB) is None
    labelled = Policy(eviction=(EvictionProfile(), EvictionProfile(gang_labels=(RING,))))
    assert followed.under(labelled).sizes[Gang(RING, "ml", "r")] == 1
    assert followed.under(labelled) is followed.under(labelled)
    inventory.apply(IN_A_JOB, None)
    followed.observe(IN_A_JOB, None)
    assert Gang(RING, "ml", "r") not in followed.under(labelled).sizes
    assert followed.under(Policy()) is not plain
