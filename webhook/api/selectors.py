"""Label selectors: metav1.LabelSelector, for whatever has labels."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class LabelRequirement(msgspec.Struct, frozen=True):
    """One of `matchExpressions`; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it. NotIn and DoesNotExist also hold without the label."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


class LabelSelector(msgspec.Struct, frozen=True):
    """Both parts of a selector, as requirements: an entry of `matchLabels` is an In with one value."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all requirements are met; an empty selector selects everything."""
        return all(requirement.matches(labels) for requirement in self.requirements)
