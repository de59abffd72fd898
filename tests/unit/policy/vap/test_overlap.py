"""Matches that can have nothing in common: each part of a match, alone, tells them apart or does not."""

from __future__ import annotations

import pytest

from webhook.policy.coverage import apart
from webhook.policy.model import ANYTHING, Match, NamespaceMatch, TaintMatch, TolerationMatch


def keys(*patterns: str) -> Match:
    return Match(tolerations=TolerationMatch(keys=patterns))


def effects(*names: str) -> Match:
    return Match(tolerations=TolerationMatch(effects=names))


def taints(*names: str) -> Match:
    return Match(taints=TaintMatch(effects=names))


CASES = {
    "anything and anything": (ANYTHING, ANYTHING, False),
    "drivers": (Match(drivers=("a",)), Match(drivers=("b",)), True),
    "drivers in common": (Match(drivers=("a", "c")), Match(drivers=("b", "c")), False),
    "drivers of one only": (Match(drivers=("a",)), ANYTHING, False),
    "pools": (Match(pools=("a",)), Match(pools=("b",)), True),
    "pools in common": (Match(pools=("a*",)), Match(pools=("ab",)), False),
    "classes": (Match(device_classes=("a",)), Match(device_classes=("b",)), True),
    "a driver and a pool": (Match(drivers=("a",)), Match(pools=("b",)), False),
    "namespaces of one only": (Match(namespaces=NamespaceMatch(("a",))), ANYTHING, False),
    "namespaces of the other only": (ANYTHING, Match(namespaces=NamespaceMatch(("a",))), False),
    "namespaces by labels": (
        Match(namespaces=NamespaceMatch(labels=(("a", "b"),))),
        Match(namespaces=NamespaceMatch(("x",))),
        False,
    ),
    "values": (
        Match(tolerations=TolerationMatch(values=("a",))),
        Match(tolerations=TolerationMatch(values=("b",))),
        True,
    ),
    "values of taints": (Match(taints=TaintMatch(values=("a",))), Match(taints=TaintMatch(values=("b",))), True),
    "keys of taints": (Match(taints=TaintMatch(("a",))), Match(taints=TaintMatch(("b",))), True),
    "keys of taints in common": (Match(taints=TaintMatch(("a",))), Match(taints=TaintMatch(("a",))), False),
    "a key and a value": (keys("a"), Match(tolerations=TolerationMatch(values=("b",))), False),
    "keys of one only": (keys("a"), ANYTHING, False),
    "keys of the other only": (ANYTHING, keys("a"), False),
    "a pattern and another end": (keys("a*x"), keys("a*y"), True),
    "a pattern and another beginning": (keys("a*x"), keys("b*x"), True),
    "a longer beginning": (keys("ab*"), keys("a*"), False),
    "a shorter beginning": (keys("a*"), keys("ab*"), False),
    "a longer end": (keys("*ab"), keys("*b"), False),
    "a shorter end": (keys("*b"), keys("*ab"), False),
    "an end that is another's beginning": (keys("*a"), keys("a*"), False),
    "an end, and text between stars": (keys("*d"), keys("a*c*"), False),
    "text between stars, and an end": (keys("a*c*"), keys("*d"), False),
    "a star and a question mark": (keys("a?c*"), keys("a*d"), False),
    "a text that its pattern does not describe": (keys("a*"), keys("b"), True),
    "a pattern that does not describe the text": (keys("b"), keys("a*"), True),
    "a question mark is one letter": (keys("a?"), keys("a"), True),
    "everything among others": (keys("a", "*"), keys("b"), False),
    "everything among the other's": (keys("b"), keys("a", "*"), False),
    "one pair in common is enough": (keys("a", "b"), keys("c", "b"), False),
    "effects": (effects("NoSchedule"), effects("NoExecute"), True),
    "effects in common": (effects("NoSchedule", "NoExecute"), effects("NoExecute"), False),
    "effects of one only": (effects("NoSchedule"), effects(), False),
    "effects of the other only": (effects(), effects("NoSchedule"), False),
    "effects of anything": (effects("NoSchedule"), ANYTHING, False),
    "anything's effects": (ANYTHING, effects("NoSchedule"), False),
    "effects of taints": (taints("NoSchedule"), taints("NoExecute"), True),
    "effects of taints in common": (taints("NoSchedule"), taints("NoSchedule"), False),
    "admin access": (Match(admin_access=True), Match(admin_access=False), True),
    "no admin access": (Match(admin_access=False), Match(admin_access=True), True),
    "admin access in common": (Match(admin_access=True), Match(admin_access=True), False),
    "no admin access in common": (Match(admin_access=False), Match(admin_access=False), False),
    "admin access of one only": (Match(admin_access=True), ANYTHING, False),
    "admin access of the other only": (ANYTHING, Match(admin_access=False), False),
    "eviction": (Match(evict=True), Match(evict=False), True),
    "eviction in common": (Match(evict=False), Match(evict=False), False),
    "eviction of one only": (Match(evict=False), ANYTHING, False),
}


@pytest.mark.parametrize(("allowing", "refusing", "expected"), CASES.values(), ids=CASES)
def test_only_what_has_nothing_in_common_is_apart(allowing: Match, refusing: Match, expected: bool) -> None:  # noqa: FBT001 -- a table's column
    assert apart(allowing, refusing) is expected
