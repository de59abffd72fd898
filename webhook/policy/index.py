"""Which rules may match a requester, a toleration or a taint, found without trying each of them.

Only names are looked at (namespaces, users and groups, device classes, drivers, keys, values), so a rule that is found
may still not match; a rule that is not found does not. A set of rules is an integer, one bit per rule, in the order of
the policy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from webhook.api.remembered import remembered
from webhook.api.taints import EXISTS, DeviceTaint, DeviceToleration
from webhook.policy.match import FEW_TEXTS, Glob, Matcher, Placement, Scope, Target, TextSet, TolerationMatcher

_REMEMBERED_TEXTS: Final = 1024
_EVERYTHING: Final = TextSet(())


class _Texts:
    """For each text, the rules with a matching pattern. Patterns are filed under the letters before a wildcard."""

    __slots__ = ("_always", "_exact", "_lengths", "_prefixed", "rules")

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
        self.rules = remembered(_REMEMBERED_TEXTS)(self._rules)

    def _rules(self, text: str) -> int:
        """The rules with a pattern that matches the text."""
        found = self._always | self._exact.get(text, 0)
        for length in self._lengths:
            for bit, glob in self._prefixed.get(text[:length], ()):
                if not found & bit and glob.matches(text):
                    found |= bit
        return found


def positions(rules: int) -> Iterator[int]:
    """The positions in a set of rules, in order."""
    while rules:
        bit = rules & -rules
        rules ^= bit
        yield bit.bit_length() - 1


class ScopeIndex:
    """The rules, by the namespaces and requesters that they name."""

    __slots__ = ("_accounts", "_groups", "_namespaces", "_unnamed", "_users")

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        namespaces: list[tuple[int, TextSet]] = []
        users: list[tuple[int, TextSet]] = []
        groups: list[tuple[int, TextSet]] = []
        accounts: list[tuple[int, TextSet]] = []
        self._unnamed = 0
        for number, matcher in enumerate(matchers):
            bit = 1 << number
            namespaces.append((bit, _EVERYTHING if matcher.names is None else matcher.names.names))
            requesters = matcher.requesters
            lists = () if requesters is None else (requesters.users, requesters.groups, requesters.accounts)
            if not any(lists):
                self._unnamed |= bit
            for texts, named in zip(lists, (users, groups, accounts), strict=False):
                if texts is not None:
                    named.append((bit, texts))
        self._namespaces, self._users, self._groups, self._accounts = map(_Texts, (namespaces, users, groups, accounts))

    def candidates(self, scope: Scope) -> int:
        """The rules that may apply to the requester in the namespace."""
        found = self._namespaces.rules(scope.namespace)
        requester = scope.requester
        # Who is not known is met by each rule that refuses; very many groups are not worth looking up one by one.
        if requester is None or not requester.groups_known or len(requester.groups) > FEW_TEXTS:
            return found
        named = self._unnamed | self._users.rules(requester.username)
        for group in requester.groups:
            named |= self._groups.rules(group)
        account = requester.service_account
        if account is not None:
            named |= self._accounts.rules(account)
        return found & named


class _Drivers:
    """The rules, by the drivers that they name."""

    __slots__ = ("_any", "_names")

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        self._names = _Texts([(1 << number, matcher.drivers.texts) for number, matcher in enumerate(matchers)])
        # Drivers that are not known are met by each rule that refuses; none at all by each rule that allows.
        self._any = (1 << len(matchers)) - 1

    def candidates(self, drivers: Iterable[str] | None) -> int:
        """The rules that may match one of the drivers, or all of them; None if they are not known."""
        if not drivers:
            return self._any
        found = 0
        for driver in drivers:
            found |= self._names.rules(driver)
        return found


class TolerationIndex:
    """The rules on tolerations, by the device classes, drivers, keys and values that they name."""

    __slots__ = ("_any_key", "_any_value", "_classes", "_drivers", "_keys", "_values")

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        keys: list[tuple[int, TextSet]] = []
        values: list[tuple[int, TextSet]] = []
        self._any_key = self._any_value = unnamed = 0
        for number, matcher in enumerate(matchers):
            bit = 1 << number
            taints = matcher.taints
            if not isinstance(taints, TolerationMatcher):
                unnamed |= bit
                continue
            keys.append((bit, taints.keys))
            values.append((bit, taints.values))
            # A toleration of every key meets each rule that refuses, and only those that allow every key.
            if not matcher.allowing or taints.keys.everything:
                self._any_key |= bit
            if not matcher.allowing or taints.values.everything:
                self._any_value |= bit
        self._any_key |= unnamed
        self._any_value |= unnamed
        self._keys = _Texts([(unnamed, _EVERYTHING), *keys])
        self._values = _Texts([(unnamed, _EVERYTHING), *values])
        self._classes = _Texts([(1 << number, matcher.classes) for number, matcher in enumerate(matchers)])
        self._drivers = _Drivers(matchers)

    def candidates(self, target: Target, toleration: DeviceToleration | None) -> int:
        """The rules that may match the toleration on these devices; None is the request itself."""
        found = self._classes.rules(target.device_class) & self._drivers.candidates(target.drivers)
        if toleration is None:
            return found
        found &= self._keys.rules(toleration.key) if toleration.key else self._any_key
        if toleration.operator == EXISTS:
            return found & self._any_value
        return found & self._values.rules(toleration.value)


class TaintIndex:
    """The rules on taints, by the drivers, keys and values that they name."""

    __slots__ = ("_drivers", "_keys", "_values")

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        keys: list[tuple[int, TextSet]] = []
        values: list[tuple[int, TextSet]] = []
        for number, matcher in enumerate(matchers):
            taints = matcher.taints if isinstance(matcher.taints, tuple) else (_EVERYTHING, _EVERYTHING)
            keys.append((1 << number, taints[0]))
            values.append((1 << number, taints[1]))
        self._keys, self._values = _Texts(keys), _Texts(values)
        self._drivers = _Drivers(matchers)

    def candidates(self, place: Placement, taint: DeviceTaint) -> int:
        """The rules that may match the taint on those devices."""
        found = self._drivers.candidates(None if place.driver is None else (place.driver,))
        return found & self._keys.rules(taint.key) & self._values.rules(taint.value)
