"""Whether a patch is over the limits of the policy: all that it taints is one impact.

A patch may put several taints on devices, and each may have another entry of the policy. The entry of a taint is for
everything that the patch hits, as it would be for the last of as many rules.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.admission.over_limit import LimitCheck, LimitReason, done_for
from webhook.admission.recent_impact import closed_together, closed_together_with_recent
from webhook.api.rules import DeviceSelector
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.fates import DeviceNames
from webhook.inventory.gang_impact import with_companions, with_gangs
from webhook.inventory.hardware import siblings_of_rule
from webhook.inventory.impact import Taint
from webhook.inventory.joint_impact import joint_impact
from webhook.inventory.matching import Evictor
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.policy.model import Action, InTreeEvictor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.admission.confirmation import ImpactToConfirm
    from webhook.admission.context import AdmissionContext
    from webhook.admission.recent_impact import ClosedDevices
    from webhook.admission.review import AdmissionRequest
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.impact import Impact
    from webhook.inventory.state import Inventory
    from webhook.inventory.steps import Check

_PHASE: Final = "impact"


class PartCheck(LimitCheck):
    """One taint of a patch, on all of its devices. `beside` are the devices of the patch's other taints."""

    def __init__(
        self,
        rules: Sequence[DeviceTaintRule],
        beside: Sequence[DeviceNames],
        request: AdmissionRequest,
        context: AdmissionContext,
    ) -> None:
        super().__init__(rules[0], None, request, context)
        self.rules = tuple(rules)
        self._own = tuple(dict.fromkeys([DeviceNames.of(rule.selector) for rule in rules]))
        self._beside = beside

    @property
    def key(self) -> str:
        """The key of the taint."""
        return self._new.taint.key

    @property
    def is_literal(self) -> bool:
        """Whether the taint has effect NoExecute, rather than a form that evicts pods."""
        return self._new.taint.effect == NO_EXECUTE

    @property
    def softened(self) -> bool:
        """Whether the taint has the form that softening gives to a NoExecute taint."""
        return self._new.softened

    def reasons_for(self, why: str, *, of_filter: bool) -> Iterator[LimitReason]:
        """As `reasons_unknown`; else a filter that cannot be evaluated in time would be a way around the limit."""
        found = tuple(self.reasons_unknown(why))
        yield from found
        denies = self._settings.unknown_impact is Action.DENY
        if of_filter and denies and not self.evicts and self.limits.devices is not None:
            yield LimitReason("unknown", f"what it hits is not known: {why}")

    def _closed_alone(self, inventory: Inventory) -> ClosedDevices | None:
        return closed_together(self.limits.devices, self._own, self._beside, inventory, self._context)

    def _closed_with_recent(self, inventory: Inventory) -> ClosedDevices | None:
        return closed_together_with_recent(self.limits.devices, self._own, self._beside, inventory, self._context)


class PartReason(NamedTuple):
    """Why a patch is over the limit, and the taint whose entry of the policy says so."""

    part: PartCheck
    reason: LimitReason

    @property
    def excused(self) -> bool:
        """Whether the devices may be closed all the same: by the entry of the policy, and by the form of the taint."""
        return self.part.softens and self.part.softened and self.reason.softens


class PatchCheck:
    """What a patch does that it did not do before, measured by the limits of its requester.

    `rules` say what that is (see `patch_reach`). If none acts, they are judged as if they evicted.
    """

    def __init__(self, rules: Iterable[DeviceTaintRule], request: AdmissionRequest, context: AdmissionContext) -> None:
        self.rules = tuple(rules)
        self._context = context
        acting = [rule for rule in self.rules if rule.effective_effect in EFFECT_RANK]
        self.acts = bool(acting)
        by_taint: dict[tuple[str, str], list[DeviceTaintRule]] = {}
        for rule in acting:
            by_taint.setdefault((rule.taint.key, rule.taint.effect), []).append(rule)
        self.names = tuple(dict.fromkeys([DeviceNames.of(rule.selector) for rule in acting]))
        self.parts = tuple([PartCheck(rules, self.names, request, context) for rules in by_taint.values()])
        self._request = request
        self.in_time: Check = partial(context.budget.check, _PHASE)
        self.in_tree = context.policy.in_tree_evictor is InTreeEvictor.ACTIVE

    @cached_property
    def leading(self) -> DeviceTaintRule:
        """The rule that does most, of which texts are written."""
        return max(self.rules, key=lambda rule: EFFECT_RANK.get(rule.effective_effect, 0))

    # --- the impact ------------------------------------------------------------------------------

    def impact(self, inventory: Inventory) -> Impact:
        """What all of it hits together; if it does nothing, what it would. Raises OutOfTime."""
        rules = [rule for part in self.parts for rule in part.rules] if self.acts else self.rules
        return self._joint(inventory, rules)

    def _joint(self, inventory: Inventory, rules: Iterable[DeviceTaintRule]) -> Impact:
        taints = [(rule.selector or DeviceSelector(), self._acting(rule)) for rule in rules]
        impact = joint_impact(inventory, taints, self._context.now, self.in_time)
        ours = any(taint.evictor is Evictor.OURS for _, taint in taints)
        return with_companions(inventory, impact, Evictor.OURS if ours else None, self._context.pods, self.in_time)

    def _acting(self, rule: DeviceTaintRule) -> Taint:
        taint = Taint.of_rule(rule, in_tree=self.in_tree)
        return taint if self.acts else taint.as_if_evicting(in_tree=self.in_tree)

    def shown(self, inventory: Inventory, impact: Impact) -> Impact:
        """The impact with what only texts need: gangs, and other parts of the same hardware."""
        shown = with_gangs(inventory, impact, self._context.pods, self.in_time)
        if len(self.rules) > 1:
            return shown
        effect = "" if self.acts else NO_EXECUTE
        return structs.replace(shown, siblings=siblings_of_rule(inventory, self.leading, effect, self.in_time))

    def to_confirm(self, impact: Impact, stored: ResourceSlicePatch | None) -> ImpactToConfirm:
        """Return the same as a text confirms it, with what was done for the patch as it is `stored`."""
        part = self.parts[0] if self.parts else PartCheck(self.rules, self.names, self._request, self._context)
        return part.to_confirm(impact)._replace(done=done_for(stored, self._context))

    # --- reasons ---------------------------------------------------------------------------------

    def reasons(self, inventory: Inventory, impact: Impact) -> tuple[PartReason, ...]:
        """Why the patch is over a limit; `impact` is that of all of it."""
        return _each_once([each for part in self.parts for each in self._of_part(part, inventory, impact)])

    def _of_part(self, part: PartCheck, inventory: Inventory, impact: Impact) -> Iterator[PartReason]:
        own = impact if len(self.parts) == 1 else self._joint(inventory, part.rules)
        # As with rules: a taint that evicts no pod is not refused because of the pods of others.
        hit = impact if own.pods or own.pod_groups else own
        for reason in part.reasons(inventory, hit, part.to_confirm(hit)):
            yield PartReason(part, reason)

    def reasons_known(self) -> tuple[PartReason, ...]:
        """Why it is over a limit, whatever it hits."""
        return _each_once([PartReason(part, each) for part in self.parts for each in part.reasons_known()])

    def reasons_unknown(self, why: str, *, of_filter: bool) -> tuple[PartReason, ...]:
        """Why it counts as over a limit while its impact is not known; `why` says why not.

        `of_filter`: because of what its author wrote into the filter, so that a limit on devices holds for it, too.
        """
        return _each_once(
            [PartReason(part, each) for part in self.parts for each in part.reasons_for(why, of_filter=of_filter)]
        )


def all_may_soften(reasons: Iterable[PartReason]) -> bool:
    """Whether a patch that is over the limit for these reasons may be softened, by the entries that say so."""
    return all(each.reason.softens and each.part.softens for each in reasons)


def _each_once(reasons: Iterable[PartReason]) -> tuple[PartReason, ...]:
    """Several taints often have the same to say; of those the one counts that is least likely to be let through."""
    found: dict[LimitReason, PartReason] = {}
    for each in reasons:
        found[each.reason] = min(found.get(each.reason, each), each, key=_lenience)
    return tuple(found.values())


def _lenience(each: PartReason) -> tuple[bool, bool]:
    """Whether the taint may be softened, and whether it is, by the entry of the policy that says so."""
    return each.part.softens, each.excused
