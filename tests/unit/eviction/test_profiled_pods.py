"""What profiles say of pods: their gang, and whether our worker skips them."""

from __future__ import annotations

import pytest

from tests.unit.eviction.objects import claim, owned, pod
from webhook.api.pods import Owner, Pod
from webhook.eviction.followed_pods import FollowedPods, ProfiledPods
from webhook.inventory.gangs import Gang
from webhook.inventory.preview import OutcomeReason
from webhook.inventory.state import Inventory
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import EvictionProfile, NamespaceMatch, Policy

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


def test_first_profile_that_matches_counts() -> None:
    other = EvictionProfile(namespaces=NamespaceMatch(names=("web",)))
    assert pods(BY_OWNER, EvictionProfile()).gang_of(IN_A_JOB) == JOB
    assert pods(other, BY_OWNER).gang_of(IN_A_JOB) == JOB


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
