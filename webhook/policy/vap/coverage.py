"""What an export has beside rules: the documented rules and the guard, as far as they go without us."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.rules import CONFIRM_IMPACT
from webhook.policy.model import NAMESPACE_NAME_LABEL, PolicyMode, UnknownAuthor
from webhook.policy.vap.cel import TRUE, all_of, listed, nobody, not_
from webhook.policy.vap.objects import ALTERNATIVES_MOST, TOLERATIONS_MOST, Validation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.policy.model import Policy

_MAX_TOLERATIONS: Final = 16
"""In a list, by the documents; validation/documented.py, which is next door, has the same number."""
_LABELS_GROUP, _LABELS_RESOURCE, _LABELS_VERB = "policy.devicetaint.io", "trustednamespacelabels", "set"
"""What RBAC grants to those who may set trusted labels; there is no such resource, and none is needed."""
_GUARD: Final = "impact"
_DOCUMENTED: Final = "documentedRules"


class Coverage(StrEnum):
    """How much of a rule is exported."""

    FULL = "full"
    """Refused is exactly what the webhook refuses by this rule."""
    PARTIAL = "partial"
    """Refused is less."""
    NONE = "none"


class Exported(NamedTuple):
    """What became of a rule, and why it is not more."""

    name: str
    coverage: Coverage
    why: tuple[str, ...] = ()


def documented_validations() -> Iterator[Validation]:
    """The documented rules on tolerations."""
    counted = f"has(asked.tolerations) && size(asked.tolerations) > {_MAX_TOLERATIONS}"
    text = f"must have at most {_MAX_TOLERATIONS} tolerations in a list"
    yield Validation(_DOCUMENTED, nobody(TRUE, counted), f"{text} ({_DOCUMENTED})", ALTERNATIVES_MOST)
    keyless = (
        "has(asked.tolerations) && asked.tolerations.exists(t,\n"
        '      (!has(t.key) || t.key == "") && !(has(t.operator) && t.operator == "Exists"))'
    )
    text = 'the operator of a toleration must be "Exists" when key is empty, which means all keys and all values'
    yield Validation(_DOCUMENTED, nobody(TRUE, keyless), f"{text} ({_DOCUMENTED})", TOLERATIONS_MOST)


def guard_validations(policy: Policy) -> Iterator[Validation]:
    """What the guard refuses whatever it hits, unless it is confirmed; whether a code holds, only the webhook knows."""
    groups = policy.impact.break_glass_groups
    glass = f"has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in {listed(groups)})"
    excused = [glass] if groups else []
    confirmed = (
        f'has(object.metadata.annotations) && "{CONFIRM_IMPACT}" in object.metadata.annotations '
        f'&& object.metadata.annotations["{CONFIRM_IMPACT}"] != ""'
    )
    newly = "variables.rank > variables.oldRank || !variables.oldWide"
    wide = ["variables.rank > 0", "variables.wide", newly]
    text = "a selector that names no driver, pool or device is every device of every driver; narrow the selector"
    yield Validation(_GUARD, not_(all_of([*wide, not_(confirmed), *map(not_, excused)])), f"{text} (rule {_GUARD})")
    if policy.impact.two_step:
        first = ['request.operation == "CREATE"', "variables.rank == 2", *map(not_, excused)]
        text = 'must not evict yet: create the rule with effect "None", look at its status, and change it then'
        yield Validation(_GUARD, not_(all_of(first)), f"{text} (rule {_GUARD})")


def beyond(policy: Policy, documented: PolicyMode) -> Iterator[Exported]:
    """What became of the parts of a policy that are no rules; `documented` is how far those rules go."""
    if documented is not PolicyMode.OFF:
        why = "annotations of DeviceTaintRules are left to the webhook"
        yield Exported(_DOCUMENTED, Coverage.PARTIAL, (why,))
    if policy.mode is not PolicyMode.OFF:
        why = (
            "what a taint hits is known to the webhook only: exported are rules without selector that nobody confirmed"
        )
        yield Exported(_GUARD, Coverage.PARTIAL, (why,))
    if policy.mode is not PolicyMode.OFF and policy.unknown_author is UnknownAuthor.DENY:
        yield Exported("unknownAuthor", Coverage.NONE, ("authors are sealed with a key of the webhook's",))


def labels_validation(policy: Policy) -> Validation | None:
    """That only who may do so sets, changes or removes trusted labels; None if the API server guards all there are."""
    keys = [key for key in policy.trusted_namespace_labels if key != NAMESPACE_NAME_LABEL]
    if not keys:
        return None
    places = ("object.metadata.labels", "oldObject.metadata.labels")
    there = [f"has({place}) && key in {place}" for place in places]
    same = f"({there[0]} ? [{places[0]}[key]] : [])\n    == (oldObject != null && {there[1]} ? [{places[1]}[key]] : [])"
    allowed = f'authorizer.group("{_LABELS_GROUP}").resource("{_LABELS_RESOURCE}").check("{_LABELS_VERB}").allowed()'
    text = f"only who may {_LABELS_VERB} {_LABELS_RESOURCE}.{_LABELS_GROUP} may change labels {', '.join(keys)}"
    return Validation("trustedNamespaceLabels", f"{listed(keys)}.all(key,\n    {same})\n|| {allowed}", text)
