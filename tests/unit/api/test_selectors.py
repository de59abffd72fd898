"""Label selectors, as metav1.LabelSelector has them."""

from __future__ import annotations

import pytest

from webhook.api.meta import LabelRequirement, LabelSelector

LABELS = {"app": "train", "tier": ""}


@pytest.mark.parametrize(
    ("operator", "key", "values", "expected"),
    [
        ("In", "app", ("serve", "train"), True),
        ("In", "app", ("serve",), False),
        ("In", "none", ("train",), False),
        ("In", "tier", ("",), True),
        ("NotIn", "app", ("serve",), True),
        ("NotIn", "app", ("train",), False),
        ("NotIn", "none", ("train",), True),
        ("Exists", "tier", (), True),
        ("Exists", "none", (), False),
        ("DoesNotExist", "none", (), True),
        ("DoesNotExist", "tier", (), False),
    ],
)
def test_requirement_is_met_by(operator: str, key: str, values: tuple[str, ...], expected: bool) -> None:  # noqa: FBT001
    assert LabelRequirement(key, operator, values).matches(LABELS) is expected


def test_selector_selects_what_meets_all_requirements() -> None:
    train, none = LabelRequirement("app", "In", ("train",)), LabelRequirement("none", "Exists")
    assert LabelSelector((train,)).matches(LABELS)
    assert not LabelSelector((train, none)).matches(LABELS)


def test_empty_selector_selects_everything() -> None:
    assert LabelSelector().matches({})
