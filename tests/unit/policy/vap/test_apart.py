"""Matches that have nothing in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.properties.policies import (
    allowed_taints,
    refused_taints,
    tolerations,
)
from webhook.policy.coverage import apart
from webhook.policy.match import TolerationMatcher
from webhook.policy.model import Match, NamespaceMatch, RequesterMatch, TolerationMatch

if TYPE_CHECKING:
    from webhook.api.taints import DeviceToleration


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("a/*",), ("b/*",), True),
        (("a/*",), ("a/b",), False),
        (("a/*", "b/*"), ("a/b",), False),
        (("*/x",), ("*/y",), True),
        (("*x*",), ("*y*",), False),
        (("a",), ("b", "c"), True),
        (("a?",), ("ab",), False),
        (("*",), ("b",), False),
        ((), ("b",), False),
    ],
)
def test_keys_that_have_nothing_in_common(one: tuple[str, ...], other: tuple[str, ...], expected: bool) -> None:  # noqa: FBT001 -- a parameter
    allowing, refusing = (Match(tolerations=TolerationMatch(keys=keys)) for keys in (one, other))
    assert apart(allowing, refusing) is expected
    assert apart(Match(device_classes=one), Match(device_classes=other)) is expected
    assert apart(*(Match(namespaces=NamespaceMatch(names)) for names in (one, other))) is expected


def test_requesters_are_never_certainly_apart() -> None:
    assert not apart(*(Match(requesters=RequesterMatch((name,))) for name in ("a", "b")))


@settings(max_examples=300, deadline=None)
@given(allowed_taints, refused_taints, tolerations)
def test_nothing_is_allowed_and_refused_by_matches_that_are_apart(
    allowed: TolerationMatch, refused: TolerationMatch, toleration: DeviceToleration
) -> None:
    if apart(Match(tolerations=allowed), Match(tolerations=refused)):
        assert not (
            TolerationMatcher(allowed).contains(toleration) and TolerationMatcher(refused).intersects(toleration)
        )
