"""Resource versions in order, and keys."""

from __future__ import annotations

import pytest

from webhook.cluster.cache.listwatch import Meta, WireValue, is_newer


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        ("2", "1", True),
        ("1", "1", False),
        ("1", "2", False),
        ("10", "9", True),
        ("9", "10", False),
        ("1", "", True),
        ("", "", False),
        ("b", "a", True),
        ("a", "b", True),
        ("a", "a", False),
    ],
)
def test_versions_are_numbers_or_else_only_differ(version: str, than: str, *, newer: bool) -> None:
    assert is_newer(version, than) is newer


def test_key_names_the_namespace_if_there_is_one() -> None:
    assert WireValue(Meta("a", "ns")).key == "ns/a"
    assert WireValue(Meta("a")).key == "a"
