"""The confirmation that a rule or patch carries: whether it may be set, and whether it holds for what is hit now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Final

from webhook.admission.confirmation import (
    ImpactToConfirm,
    as_it_will_act,
    confirms,
    digest_of,
    exceeded,
    names_of,
    overstated,
    read_text,
    text_of,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.review import AdmissionRequest
from webhook.api.field import JSON, Finding, Path, Severity, forbidden
from webhook.api.meta import changed_at
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.patches.patch_reach import nominal_rules
from webhook.policy.impact_limits import limits_for, may_confirm
from webhook.policy.model import ImpactSettings
from webhook.policy.ports import ANONYMOUS, Requester

_UNREADABLE: Final = 'is not a confirmation: it must be like "v1 devices=4 claims=4 pods=4 namespaces=1 of=..."'
_OTHER: Final = (
    "was printed for another object: name, selector, key, value, effect, /evict, /scope or a past timeAdded differ"
)
_NOBODY: Final = "confirms nothing: by the policy no one may confirm this (confirmable: false)"
_UNJUDGED: Final = "was stored before the policy that says who may confirm: remove it, and set it again if it is right"
_NOT_YOU: Final = "may be set by the policy's confirmers alone, and the requester is none of them"


class CarriedText:
    """The text in a rule or patch that is created (`old` is None) or updated. All sentences say what is wrong with it.

    `backdated`: False if times that are past were there before, so that they need not have been confirmed.
    """

    def __init__(
        self,
        new: DeviceTaintRule | ResourceSlicePatch,
        old: DeviceTaintRule | ResourceSlicePatch | None,
        request: AdmissionRequest,
        context: AdmissionContext,
        *,
        backdated: bool = True,
    ) -> None:
        self.text = new.meta.annotations.get(CONFIRM_IMPACT, "")
        self.is_new = bool(self.text) and (old is None or self.text != old.meta.annotations.get(CONFIRM_IMPACT))
        """Whether it is set or changed, so that it is judged whatever the object does."""
        self._new = new
        self._old = old
        self._context = context
        self._requester = Requester(request.username, request.groups)
        since = context.now - CLOCK_SKEW
        self._moments = (since,) if backdated else (since, None)
        self._said = read_text(self.text)
        self._in_time = partial(context.budget.check, "impact")

    @property
    def _settings(self) -> ImpactSettings:
        return self._context.policy.impact

    @property
    def by_requester(self) -> bool:
        """Whether the policy lets the requester confirm; in files no one asks."""
        unnamed = self._context.offline and self._requester.username == ANONYMOUS
        return unnamed or may_confirm(self._settings, self._requester)

    @property
    def confirmable(self) -> bool:
        """Whether no limit on what the object does, or will do once its effect is raised, says that no one confirms."""
        return self._may_be_confirmed(self._acting)

    def _may_be_confirmed(self, form: DeviceTaintRule | ResourceSlicePatch) -> bool:
        rules = (form,) if isinstance(form, DeviceTaintRule) else nominal_rules(form)
        limits_of = partial(limits_for, self._settings, self._requester, check=self._in_time)
        return all(limits_of(each.taint, each.effective_effect).confirmable for each in rules)

    @property
    def _acting(self) -> DeviceTaintRule | ResourceSlicePatch:
        """The object, or, if it does nothing yet, as it would act."""
        return as_it_will_act(self._new)[:2][-1]

    def _names(self) -> tuple[str, ...]:
        return tuple(names_of(self._new.meta, generated=self._old is None))

    def text_for(self, hit: ImpactToConfirm) -> str:
        """Return the text that confirms what the object hits, or will hit once its effect is raised."""
        name = next(iter(self._names()), "")
        return text_of(hit, digest_of(self._acting, name, self._moments[0]))

    def misplaced(self) -> str | None:
        """Return why a new text may not be set, whatever the object hits; None if it may, or is not new."""
        if not self.is_new:
            return None
        if self._said is None:
            return _UNREADABLE
        if not self.by_requester:
            return _NOT_YOU
        meant = [form for form in as_it_will_act(self._new) if self._is_of(form)]
        if not meant:
            return _OTHER
        return None if all(map(self._may_be_confirmed, meant)) else _NOBODY

    def overstated(self, hit: ImpactToConfirm) -> str | None:
        """Return why a new text says too much; None if it does not, or is not new."""
        return overstated(self._said.hit, hit) if self.is_new and self._said is not None else None

    def fault(self, hit: ImpactToConfirm) -> str | None:
        """Return why it does not confirm what is hit now; None if it does."""
        if not self.text:
            return "is missing"
        if self._said is None:
            return _UNREADABLE
        if not self.confirmable:
            return _NOBODY
        if not self._is_of(self._new):
            return _OTHER
        return exceeded(self._said.hit, hit, self._settings.tolerance_percent)

    def _is_of(self, judged: DeviceTaintRule | ResourceSlicePatch) -> bool:
        digests = (digest_of(judged, name, since) for name in self._names() for since in self._moments)
        return self._said is not None and self._said.of in digests

    def outlived(self) -> str | None:
        """Return why a stored text that held for the object as it was does not after this update; None otherwise."""
        stored = bool(self.text) and not self.is_new
        if stored and self._old is not None and self._is_of(self._old) and not self._is_of(self._new):
            return "was printed for the object as it was: from now on the limits of the policy hold again"
        return None


def fault_of_stored(
    judged: DeviceTaintRule | ResourceSlicePatch, metadata: Mapping[str, JSON], judged_since: datetime | None
) -> Finding | None:
    """Return what is wrong with the text of a stored rule or patch that has this metadata; None if nothing is known.

    The policy judges texts since that time; None: that is not known, and nothing is said of it.
    """
    text = judged.meta.annotations.get(CONFIRM_IMPACT, "")
    said, at = read_text(text), Path.root().child("metadata", "annotations").key(CONFIRM_IMPACT)
    if not text:
        return None
    if said is None:
        return Finding(Severity.DENY, forbidden(at, _UNREADABLE))
    if not any(confirms(said.of, form) for form in as_it_will_act(judged)):
        return Finding(Severity.DENY, forbidden(at, _OTHER))
    written = changed_at(metadata, CONFIRM_IMPACT)
    if written is None or judged_since is None or written >= judged_since:
        return None
    return Finding(Severity.WARN, forbidden(at, _UNJUDGED))
