"""Which rules may match a toleration, found without trying each of them.

Only what a rule says about keys and values is looked at, so a rule that is found may still not match; a rule that is
not found does not. A set of rules is an integer, one bit per rule, in the order of the policy.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from webhook.api.taints import EXISTS
from webhook.policy.match import TolerationMatcher
from webhook.policy.patterns import TextSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.api.taints import DeviceToleration
    from webhook.policy.match import Matcher
    from webhook.policy.patterns import Glob

_REMEMBERED_TEXTS: Final = 4096
_REMEMBERED_LENGTH: Final = 512
_EVERYTHING: Final = TextSet(())


class _Texts:
    """For each text, the rules with a pattern that matches it.

    Patterns are filed under the letters before their first wildcard, so that a text is compared with those patterns
    only that begin as it does.
    """

    __slots__ = ("_always", "_exact", "_lengths", "_prefixed", "_remembered")

    def __init__(self, sets: Iterable[tuple[int, TextSet]]) -> None:
        self._always = 0
        exact: defaultdict[str, int] = defaultdict(int)
        prefixed: defaultdict[str, list[tuple[int, Glob]]] = defaultdict(list)
        for bit, texts in sets:
            if texts.everything:
                self._always |= bit
                continue
            for text in texts.exact:
                exact[text] |= bit
            for glob in texts.globs:
                prefixed[glob.prefix].append((bit, glob))
        self._exact = dict(exact)
        self._prefixed = dict(prefixed)
        self._lengths = sorted({len(prefix) for prefix in prefixed})
        self._remembered: dict[str, int] = {}

    def rules(self, text: str) -> int:
        """The rules with a pattern that matches the text."""
        found = self._remembered.get(text)
        if found is not None:
            return found
        found = self._always | self._exact.get(text, 0)
        for length in self._lengths:
            for bit, glob in self._prefixed.get(text[:length], ()):
                if not found & bit and glob.matches(text):
                    found |= bit
        if len(text) <= _REMEMBERED_LENGTH:
            if len(self._remembered) >= _REMEMBERED_TEXTS:
                self._remembered.clear()
            self._remembered[text] = found
        return found


class TolerationIndex:
    """The rules on tolerations, by the keys and values that they name."""

    __slots__ = ("_any_key", "_any_value", "_keys", "_values")

    def __init__(self, conditions: Sequence[Matcher]) -> None:
        keys: list[tuple[int, TextSet]] = []
        values: list[tuple[int, TextSet]] = []
        self._any_key = self._any_value = unnamed = 0
        for number, condition in enumerate(conditions):
            bit = 1 << number
            taints = condition.taints
            if not isinstance(taints, TolerationMatcher):
                unnamed |= bit
                continue
            keys.append((bit, taints.keys))
            values.append((bit, taints.values))
            # A toleration of every key meets each rule that refuses, and only those that allow every key.
            if not condition.allowing or taints.keys.everything:
                self._any_key |= bit
            if not condition.allowing or taints.values.everything:
                self._any_value |= bit
        self._any_key |= unnamed
        self._any_value |= unnamed
        self._keys = _Texts([(unnamed, _EVERYTHING), *keys])
        self._values = _Texts([(unnamed, _EVERYTHING), *values])

    def candidates(self, toleration: DeviceToleration) -> int:
        """The rules that may match the toleration."""
        found = self._keys.rules(toleration.key) if toleration.key else self._any_key
        if toleration.operator == EXISTS:
            return found & self._any_value
        return found & self._values.rules(toleration.value)
