"""What the confirmation code of a patch is bound to, and whether a stored one is genuine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from webhook.admission.confirmation import about_of_patch, forgery_of
from webhook.api.rules import CONFIRM_IMPACT
from webhook.inventory.patch_reach import nominal_rules
from webhook.inventory.rule_delta import EFFECT_RANK

if TYPE_CHECKING:
    from webhook.admission.confirmation import CodeSubject
    from webhook.api.patches import ResourceSlicePatch

_ALWAYS: Final = datetime.max.replace(tzinfo=UTC)


def patch_code_about(patch: ResourceSlicePatch, since: datetime) -> CodeSubject:
    """What a code for the patch is bound to; times of taints before `since` are part of it."""
    acting = [each for each in nominal_rules(patch) if each.effective_effect in EFFECT_RANK]
    return about_of_patch(patch, acting, since)


def is_patch_proved(patch: ResourceSlicePatch, key: bytes) -> bool:
    """Whether the code that the patch carries was made with this key for the patch as it stands, expired or not."""
    text = patch.meta.annotations.get(CONFIRM_IMPACT, "")
    # Which times lay in the past then cannot be seen any more: those before some moment.
    times = sorted({each.time_added for each in patch.taints if each.time_added is not None})
    return any(
        forgery_of(text, patch_code_about(patch, since), key) is None for since in dict.fromkeys([*times, _ALWAYS])
    )
