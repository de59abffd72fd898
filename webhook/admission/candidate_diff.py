"""The candidate policy beside the one that holds: where their words differ. Nothing here acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.admission.decision import Change, Difference
from webhook.policy.model import DEFAULT_RULE, Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.admission.rulings import Ruling


def differences(active: Iterable[Ruling], candidate: Iterable[Ruling]) -> Iterator[Difference]:
    """Where two policies differ on the same object; refusals count as such in whatever mode they are."""
    before = {(str(ruling.path), ruling.what): ruling for ruling in active}
    after = {(str(ruling.path), ruling.what): ruling for ruling in candidate}
    for key in sorted(before.keys() | after.keys()):
        old_word, old_rule = _word(before.get(key))
        new_word, new_rule = _word(after.get(key))
        if old_word is new_word:
            continue
        path, what = key
        if new_word is Action.DENY:
            yield Difference(path, what, new_rule, Change.DENIED)
        elif old_word is Action.DENY:
            yield Difference(path, what, old_rule, Change.ALLOWED)
        elif new_word is Action.WARN:
            yield Difference(path, what, new_rule, Change.WARNED)
        elif old_word is Action.WARN:
            yield Difference(path, what, old_rule, Change.SILENT)


def _word(ruling: Ruling | None) -> tuple[Action, str]:
    """The strongest thing said to a person, and by which rule; audit is for nobody to see."""
    if ruling is None:
        return Action.ALLOW, DEFAULT_RULE
    refusal = ruling.denied_by
    if refusal is not None:
        return Action.DENY, refusal.rule.name
    for hit in ruling.hits:
        if hit.action is Action.WARN:
            return Action.WARN, hit.rule.name
    return Action.ALLOW, ruling.hits[-1].rule.name
