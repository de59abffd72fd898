"""Which profile a pod has, as far as it is known."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.policy.limits import PodFacts, ProfileMatcher
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import EvictionProfile, LabelMatch, NamespaceMatch

TRAIN = NamespaceMatch(("train-*",))
TIER = NamespaceMatch(labels=(("tier", "low"),))
LOW = NamespaceFacts("x", {"tier": "low"})
HIGH = NamespaceFacts("x", {"tier": "high"})


@pytest.mark.parametrize(
    ("first", "pod", "expected"),
    [
        pytest.param({"namespaces": TRAIN}, PodFacts("train-1"), 0, id="by the name of the namespace"),
        pytest.param({"namespaces": TRAIN}, PodFacts("web"), 1, id="not by the name of the namespace"),
        pytest.param({"namespaces": TIER}, PodFacts("x", LOW), 0, id="by its labels"),
        pytest.param({"namespaces": TIER}, PodFacts("x", HIGH), 1, id="not by its labels"),
        pytest.param({"namespaces": TIER}, PodFacts("x"), None, id="by labels that are not known"),
        pytest.param({"priority_at_most": 5}, PodFacts("x"), None, id="by a priority that is not known"),
        pytest.param({"priority_at_most": 5}, PodFacts("x", known=True, priority=5), 0, id="by priority"),
        pytest.param({"priority_at_most": 5}, PodFacts("x", known=True, priority=6), 1, id="not by priority"),
        pytest.param({"priority_at_most": 0}, PodFacts("x", known=True), 0, id="no priority is zero"),
        pytest.param({"priority_at_most": -1}, PodFacts("x", known=True), 1, id="no priority is not below zero"),
        pytest.param({"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x"), None, id="by labels of the pod"),
        pytest.param(
            {"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x", known=True, labels={"a": "b"}), 0, id="its labels"
        ),
        pytest.param(
            {"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x", known=True), 1, id="not by labels of the pod"
        ),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", classes={"gpu"}), 0, id="by one of its classes"),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", classes={"nic"}), None, id="there may be others"),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", known=True, classes={"nic"}), 1, id="not by class"),
        pytest.param(
            {"namespaces": TRAIN, "priority_at_most": 5}, PodFacts("web"), 1, id="one field that does not match"
        ),
        pytest.param(
            {"namespaces": TRAIN, "priority_at_most": 5}, PodFacts("train-1"), None, id="one that is not known"
        ),
    ],
)
def test_profile_of_a_pod_as_far_as_it_is_known(first: dict[str, Any], pod: PodFacts, expected: int | None) -> None:
    assert ProfileMatcher([EvictionProfile(**first), EvictionProfile()]).profile_of(pod) == expected


@pytest.mark.parametrize(
    ("first", "pod", "expected"),
    [
        pytest.param({"namespaces": TIER}, PodFacts("x", LOW, known=True), 0, id="known labels of the namespace"),
        pytest.param({"namespaces": TIER}, PodFacts("x", known=True), 1, id="unknown labels of the namespace"),
        pytest.param({"priority_at_most": 5}, PodFacts("x"), 1, id="an unknown priority"),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", classes={"nic"}), 1, id="classes that may be others"),
    ],
)
def test_profile_that_needs_an_unknown_fact_is_not_applied(first: dict[str, Any], pod: PodFacts, expected: int) -> None:
    assert ProfileMatcher([EvictionProfile(**first), EvictionProfile()]).profile_to_apply(pod) == expected


def test_last_profile_applies_to_every_pod() -> None:
    low = EvictionProfile(priority_at_most=5)
    high, unknown = PodFacts("x", known=True, priority=6), PodFacts("x")
    assert [ProfileMatcher([low, low]).profile_to_apply(pod) for pod in (high, unknown)] == [1, 1]
    assert [ProfileMatcher([low, low]).profile_of(pod) for pod in (high, unknown)] == [1, None]
