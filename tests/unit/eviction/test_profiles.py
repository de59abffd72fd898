"""Which profile applies to a pod, by its labels."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World
from webhook.api.selectors import LabelRequirement
from webhook.eviction.modes import Mode
from webhook.eviction.profiles import Profiles
from webhook.policy.model import LabelMatch


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
    world.advance(1)
    assert world.evicted == []
    world.change(before, structs.replace(before, labels=(("app", "api"),)))
    world.settle()
    assert world.evicted == ["p"]
