"""The confirmation code that a rule carries, as the guard looks at it: new or stored, ours or not, fit or not.

The numbers of a code are the worker's ceiling, so a code that comes with a request is judged also where none is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.admission.confirmation import CodeTerms, ImpactToConfirm, Numbers, fault_of, forgery_of, is_proved
from webhook.api.rules import CONFIRM_IMPACT
from webhook.api.taints import NO_EXECUTE

if TYPE_CHECKING:
    from webhook.admission.confirmation import CodeSubject
    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest
    from webhook.api.rules import DeviceTaintRule

NOTHING: Final = ImpactToConfirm(Numbers(0, 0, 0, 0), frozenset(), frozenset())
"""For what a code is compared with where the impact is not known."""
_NO_KEY: Final = "cannot be checked: the webhook has no key yet"
_NO_KEY_HERE: Final = "cannot be checked here, as there is no key"
_UNKNOWN_USER: Final = "cannot be checked: the webhook does not know who asks"


class CarriedCode:
    """The code in a rule that is created (`old` is None) or updated. All texts say what is wrong with it."""

    def __init__(
        self,
        new: DeviceTaintRule,
        old: DeviceTaintRule | None,
        about: CodeSubject,
        request: AdmissionRequest,
        context: AdmissionContext,
    ) -> None:
        self._new = new
        self._old = old
        self._about = about
        self._request = request
        self._context = context
        self.text = new.meta.annotations.get(CONFIRM_IMPACT, "")
        stored = old is not None and self.text == old.meta.annotations.get(CONFIRM_IMPACT)
        self.is_new = bool(self.text) and not stored
        self.forgery = self._forgery() if self.is_new else None
        """Why a new code is not known to be ours; None if it is, and for a stored one."""

    @property
    def unchecked(self) -> bool:
        """Whether there is nothing to check it with, because files are looked at and not a cluster."""
        return self.forgery == _NO_KEY_HERE

    def _forgery(self) -> str | None:
        key = self._context.key
        if key is None:
            return _NO_KEY if self._context.sight is not None else _NO_KEY_HERE
        return forgery_of(self.text, self._about, key)

    def fault(self, hit: ImpactToConfirm) -> str | None:
        """Why it does not hold for what the rule hits now; None if it does."""
        key, context = self._context.key, self._context
        if not self.text:
            return "is missing"
        if key is None:
            return _NO_KEY
        settings = context.policy.impact
        if settings.second_person and not context.caller_trusted:
            return _UNKNOWN_USER
        user = self._request.username if settings.second_person else None
        return fault_of(self.text, self._about, hit, CodeTerms(context.now, settings.tolerance_percent, user), key)

    def misfit(self, hit: ImpactToConfirm) -> str | None:
        """The same of a new code of ours; None for every other."""
        return self.fault(hit) if self.is_new and self.forgery is None else None

    def outlived(self) -> str | None:
        """Why a stored code does not hold any more from this update on, if it did until now."""
        key, old = self._context.key, self._old
        if key is None or old is None or self.is_new or self._new.effective_effect != NO_EXECUTE:
            return None
        if is_proved(old, key) and not is_proved(self._new, key):
            return "was made for the rule as it was: from now on the limits of the policy hold again"
        return None
