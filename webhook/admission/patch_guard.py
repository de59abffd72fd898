"""The guard of patches: what a patch taints is one impact, refused over the limits as that of a rule is.

Figures, limits, confirmations and the window are those of rules: see `guard`. A patch is expanded beside the patches
that there are: where it loses to one that does as much, it hits nothing. Of an update only counts what it adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from webhook.admission.carried_text import CarriedText
from webhook.admission.confirmation import NOTHING, ImpactToConfirm
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Assumed
from webhook.admission.guard import (
    CONFIRM,
    SILENT,
    SWAPPED,
    GuardFindings,
    answer,
    denied,
    deny,
    faults_of_new,
    glass_hint,
    warn,
    way_out,
    window_figures,
)
from webhook.admission.impact_text import annotation_of, figures_of, summary_of
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.over_limit import PartReason, PatchCheck, all_may_soften, done_for, usual_rates
from webhook.admission.review import AdmissionRequest
from webhook.api.field import Finding
from webhook.api.patches import SOFTENED_KEYS, ResourceSlicePatch
from webhook.api.rules import DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.impact import Impact, Taint
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.state import Inventory
from webhook.patches.patch_reach import (
    REACH_SECONDS,
    PatchReach,
    added_rules,
    does_no_more,
    nominal_rules,
    patch_reach,
    patch_skips_a_step,
    stands,
)
from webhook.policy.model import ImpactSettings, PolicyMode
from webhook.validation.patches import DEVICES

FILTER: Final = DEVICES.child("filter")
PATCH_TAINTS: Final = DEVICES.child("taints")
_NOTHING_NOW: Final = "taints no device now: the filter selects none, or other patches take precedence on all of them"
_COMING: Final = "a pool is published in part only, so what is in use in it and has not come yet counts"
_HIDDEN: Final = "other patches hide some of what it taints, and that counts: nothing is asked when they go"


def guard_patch(
    new: ResourceSlicePatch, old: ResourceSlicePatch | None, request: AdmissionRequest, context: AdmissionContext
) -> GuardFindings:
    """The guard's findings on a patch that is created (`old` is None) or updated. Raises OutOfTime."""
    return _PatchGuarding(new, old, request, context).result()


class PatchAddition:
    """What a patch that is created (`old` is None) or updated adds to what is tainted."""

    def __init__(
        self,
        new: ResourceSlicePatch,
        old: ResourceSlicePatch | None,
        inventory: Inventory | None,
        context: AdmissionContext,
        *,
        whole: bool = False,
    ) -> None:
        """`whole`: all that the patch taints is judged, not only what is added. Raises OutOfTime."""
        self.unknown = ""
        """Why that is not known; empty if it is."""
        self.of_filter = False
        """Whether that is because of the filter, or of other patches' filters."""
        self.judged: tuple[DeviceTaintRule, ...] = ()
        """The rules that say it; if it is not known, one for each taint."""
        self.stored: tuple[DeviceTaintRule, ...] = ()
        """The rules that will come of it, and act."""
        self.remarks: tuple[str, ...] = ()
        """What is to be known of other patches' part in it."""
        self._check = partial(context.budget.check, "impact")
        rates = usual_rates(context)
        no_more = not whole and old is not None and does_no_more(new, old, rates)
        if old is not None and no_more and does_no_more(old, new, rates):
            return
        reach, before = most, most_before = self._reaches(new, old, inventory, context)
        if old is not None and not self._stands(old, before, inventory):
            old, before = None, PatchReach()
        elif no_more:
            self.unknown = ""
            return
        if reach.won is not None or before.won is not None:
            most, most_before = self._reaches(new, old, inventory, context, context.now - CLOCK_SKEW)
        if self.unknown or inventory is None:
            self.judged = nominal_rules(new)
            return
        if old is None or whole:
            self.judged = most.rules
        else:
            self.judged = added_rules(new, most, most_before, inventory.pools, rates)
            if most is not reach:  # what it begins to do may have been counted long ago, while others hid it
                self.judged += added_rules(new, reach, before, inventory.pools, rates)
        self.remarks = tuple(_remarks(new, reach, most, inventory))
        self.stored = tuple(_that_come(reach, before))

    def _stands(self, old: ResourceSlicePatch, before: PatchReach, inventory: Inventory | None) -> bool:
        """Whether rules say what the patch said: one that needs too many has none. True if the cluster is not known."""
        if self.unknown or inventory is None:
            return not self.of_filter
        return not before.unknown and stands(old, before, inventory.rules.values())

    def _reaches(
        self,
        new: ResourceSlicePatch,
        old: ResourceSlicePatch | None,
        inventory: Inventory | None,
        context: AdmissionContext,
        judged: datetime | None = None,
    ) -> tuple[PatchReach, PatchReach]:
        """What the patch taints, and what it did before; `judged` as in `patch_reach`."""
        sight, go_on = context.sight, context.budget.lasting(REACH_SECONDS)
        assert sight is not None
        if inventory is None:
            self.unknown = sight.unknown
        elif context.patches.unknown:
            self.unknown = context.patches.unknown
        else:
            reach_of = partial(patch_reach, pools=inventory.pools, check=self._check, go_on=go_on, judged=judged)
            if judged is not None:
                unpublished = tuple(inventory.usage.unpublished(inventory.pools, self._check))
                reach_of = partial(reach_of, stored=inventory.rules.values(), unpublished=unpublished)
            reach = reach_of(new, context.patches)
            self.unknown, self.of_filter = reach.unknown, bool(reach.unknown)
            if not reach.unknown and old is not None:
                return reach, reach_of(old, context.patches)
            return reach, PatchReach()
        return PatchReach(), PatchReach()


def _that_come(reach: PatchReach, before: PatchReach) -> Iterator[DeviceTaintRule]:
    """The rules that act and were not there before."""
    known = {(each.meta.name, each.taint, each.effective_effect) for each in before.rules}
    for each in reach.rules:
        if each.effective_effect in EFFECT_RANK and (each.meta.name, each.taint, each.effective_effect) not in known:
            yield each


def _remarks(new: ResourceSlicePatch, reach: PatchReach, most: PatchReach, inventory: Inventory) -> Iterator[str]:
    parts = inventory.pools.incomplete
    coming = [
        each
        for each in most.rules
        if each not in reach.rules and each.selector and (each.selector.driver, each.selector.pool) in parts
    ]
    if new.taints and not reach.rules:
        yield _NOTHING_NOW
    if coming:
        yield _COMING
    if [each for each in most.rules if each not in coming] != list(reach.rules):
        yield _HIDDEN


class _PatchGuarding:
    """One check of one patch."""

    def __init__(
        self,
        new: ResourceSlicePatch,
        old: ResourceSlicePatch | None,
        request: AdmissionRequest,
        context: AdmissionContext,
    ) -> None:
        self._new = new
        self._old = old
        self._request = request
        self._context = context
        self._settings: ImpactSettings = context.policy.impact
        self._text = CarriedText(new, old, request, context)
        self._hit: ImpactToConfirm | None = None
        self._evicts = any(each.effective_effect == NO_EXECUTE for each in nominal_rules(new))

    def result(self) -> GuardFindings:
        """Findings, the figures for the audit log, and what later reviews must count."""
        sight, annotations = self._context.sight, dict[str, str]()
        if self._context.policy.mode is PolicyMode.OFF and not self._text.is_new:
            return SILENT
        if sight is None:
            return self._answer([], annotations)
        findings = list(self._two_steps())
        self._context.budget.check("impact")
        addition = PatchAddition(self._new, self._old, sight.inventory, self._context, whole=self._text.is_new)
        findings += [warn(FILTER, text) for text in addition.remarks]
        if not addition.judged:
            if self._text.is_new and not addition.unknown:
                self._hit = NOTHING._replace(done=done_for(self._old, self._context))
            return self._answer(findings, annotations)
        check = PatchCheck(addition.judged, self._request, self._context)
        if addition.unknown or sight.inventory is None:
            findings += self._unknown(check, addition)
            annotations["impact"] = f"unknown: {addition.unknown}"
            return self._answer(findings, annotations)
        impact = check.impact(sight.inventory)
        findings += self._measured(check, sight.inventory, impact, annotations)
        assumed = Assumed(addition.stored, check.names, impact) if check.acts else None
        return self._answer(findings, annotations, assumed)

    def _answer(
        self, findings: list[Finding], annotations: dict[str, str], assumed: Assumed | None = None
    ) -> GuardFindings:
        """The result as `answer` gives it, with what will act."""
        set_now = list(faults_of_new(self._text, self._hit, self._context))
        found = answer(findings, set_now, annotations, self._request, self._context)
        off = self._context.policy.mode is PolicyMode.OFF
        return found if found is SILENT or off or denied(found.findings) else found._replace(assumed=assumed)

    # --- what needs no inventory -----------------------------------------------------------------

    def _two_steps(self) -> Iterator[Finding]:
        if self._settings.two_step and patch_skips_a_step(self._new, self._old):
            detail = 'must not evict yet: create the patch with effect "None", look at its status, and change it then'
            yield deny(PATCH_TAINTS, detail if self._old is None else SWAPPED)

    def _unknown(self, check: PatchCheck, addition: PatchAddition) -> Iterator[Finding]:
        """The impact is not known, so only the reasons that do not depend on it can be reported."""
        if not check.acts:
            return
        text = f"its impact is not known: {addition.unknown}"
        reasons = check.reasons_unknown(addition.unknown, of_filter=addition.of_filter)
        if reasons and not self._are_excused(reasons):
            known = "".join(f"; {each.reason.text}" for each in check.reasons_known())
            yield deny(FILTER, f"{text}{known}; try again in a while{glass_hint(self._settings)}")
        else:
            yield warn(FILTER, text)

    def _are_excused(self, reasons: Iterable[PartReason]) -> bool:
        """Whether the devices may be closed all the same. A new text is judged first, as with rules."""
        return not self._text.is_new and all(each.excused for each in reasons)

    # --- what does -------------------------------------------------------------------------------

    def _measured(
        self, check: PatchCheck, inventory: Inventory, impact: Impact, annotations: dict[str, str]
    ) -> Iterator[Finding]:
        shown = check.shown(inventory, impact)
        reasons = check.reasons(inventory, impact)
        over = [each.reason.short for each in reasons]
        driver = next((each.reason.driver for each in reasons if each.reason.driver), "")
        annotations["impact"] = annotation_of(shown, acts=check.acts, over=over, driver=driver)
        figures = [
            warn(FILTER, text)
            for text in figures_of(shown, check.leading, self._context.servers, in_tree=check.in_tree)
        ]
        if check.acts:
            taint = Taint.of_rule(check.leading, in_tree=check.in_tree)
            windows = window_figures(impact, taint, inventory, self._context, check.in_time)
            figures += [warn(FILTER, text) for text in windows]
        hit = self._hit = check.to_confirm(impact, self._old)
        fault = self._text.fault(hit)
        if not reasons:
            yield from figures
        elif fault is None:
            annotations["impact"] += " confirmed"
            yield from figures
        elif self._are_excused(reasons):
            annotations["impact"] += " softened"
            yield from figures
        else:
            yield from self._refused(reasons, summary_of(shown, check.leading, self._context.servers), hit, fault)

    def _refused(
        self, reasons: Iterable[PartReason], summary: str, hit: ImpactToConfirm, fault: str
    ) -> Iterator[Finding]:
        text = f"{summary}: {'; '.join(dict.fromkeys([each.reason.text for each in reasons]))}"
        twice = self._settings.two_step and patch_skips_a_step(self._new, self._old)
        if (
            not twice
            and not self._text.is_new
            and all_may_soften(reasons)
            and any(each.part.is_literal for each in reasons)
        ):
            if self._context.policy.mode is not PolicyMode.ENFORCE:
                yield warn(FILTER, f"{text}; with mode enforce it would become NoSchedule with {SOFTENED_KEYS}")
                return
            text += "; /mutate softens such taints, but did not answer, or there is one of that key with NoSchedule"
        yield deny(FILTER, f"{text}; {way_out(self._text, hit, self._settings, 'filter')}")
        if self._text.text and not self._text.misplaced():
            yield deny(CONFIRM, fault)
