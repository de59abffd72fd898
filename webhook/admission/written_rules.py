"""Rules of the patch controller: they may say a part of what a patch says, or close the hardware of another rule.

The impact of a patch was judged when it was admitted, so these rules are not judged for theirs; instead they must be
within the patch. From any other account marks of ours are refused unless the controller would write the very rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from msgspec import structs

from webhook.admission.context import AdmissionContext
from webhook.admission.guard import SILENT, GuardFindings, deny, milder
from webhook.admission.review import AdmissionRequest
from webhook.api.field import Finding
from webhook.api.meta import format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import (
    ACTING_ANNOTATIONS,
    CONFIRM_IMPACT,
    EVICT,
    EXPIRES_AT,
    HARDWARE,
    HARDWARE_LABEL,
    PATCH_LABEL,
    REACTION,
    REASONS,
    SCOPE,
    SOFTENED_FROM,
    DeviceSelector,
    DeviceTaintRule,
    RuleOrigin,
)
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.hardware import devices_beside
from webhook.inventory.pools import Check, in_steps, selects
from webhook.inventory.rule_delta import narrower
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceId, can_judge, is_named_for, is_same_taint
from webhook.patches.patch_reach import REACH_SECONDS, nominal_rules, patch_reach
from webhook.patches.patching import origin_of
from webhook.policy.limits import may_come_of_reactions, written_by_reaction
from webhook.policy.model import PolicyMode
from webhook.validation.formats import METADATA
from webhook.validation.rules import SELECTOR, TAINT

_OWNERS: Final = METADATA.child("ownerReferences")
_LABELS: Final = METADATA.child("labels")
_ANNOTATIONS: Final = METADATA.child("annotations")
_RETRY: Final = "try again in a while"


def is_written(new: object, request: AdmissionRequest, context: AdmissionContext) -> bool:
    """Return whether the patch controller writes a rule for a patch or for hardware.

    Nothing else was judged for a rule that may come of the policy's reactions, so such a rule is judged as any other,
    unless it has a patch or a rule as its controller, as then it is compared with that.
    """
    if not context.patch_account or request.username != context.patch_account or not isinstance(new, DeviceTaintRule):
        return False
    if not may_come_of_reactions(new, context.policy.reactions):
        return True
    return new.origin.patch or new.origin.rule


def guard_written(new: DeviceTaintRule, old: DeviceTaintRule | None, context: AdmissionContext) -> GuardFindings:
    """Refuse a rule of the patch controller that is not what it was written for. Raises OutOfTime."""
    sight, mode = context.sight, context.policy.mode
    if sight is None or mode is PolicyMode.OFF:
        return SILENT
    origin = new.origin
    if not origin.patch and not origin.rule:
        text = "the patch controller may only write rules that a ResourceSlicePatch or a DeviceTaintRule controls"
        findings = [deny(_OWNERS, text)]
    elif sight.inventory is None:
        findings = [deny(_OWNERS, f"cannot be checked: {sight.unknown}; {_RETRY}")]
    else:
        context.budget.check("impact")
        written = _Written(new, old, origin, sight.inventory, context)
        findings = list(written.for_patch() if origin.patch else written.for_hardware())
    if not findings:
        return SILENT
    return GuardFindings(tuple(milder(findings, mild=mode is not PolicyMode.ENFORCE, turned_down=True)))


def guard_marks(
    new: DeviceTaintRule, old: DeviceTaintRule | None, request: AdmissionRequest, context: AdmissionContext
) -> tuple[Finding, ...]:
    """Refuse our controllers' marks on a rule of another account that they would not have written.

    Marks that an update leaves alone are not judged again, also if it takes the owner out and leaves the label, as the
    garbage collector does. Raises OutOfTime.
    """
    mode, origin, account = context.policy.mode, new.origin, context.patch_account
    reasons = new.meta.annotations.get(REASONS)
    owned = origin.patch or origin.rule or origin.of_patch or origin.hardware_of
    marked = owned or reasons or origin.of_reaction
    if not marked or mode is PolicyMode.OFF or (account and request.username == account):
        return ()
    was = RuleOrigin() if old is None else old.origin
    orphan = structs.replace(was, name="", uid="", patch=False, rule=False)
    findings: list[Finding] = []
    fault = next(_faults_of_marks(new, old, context), "") if owned and origin not in (was, orphan) else ""
    if fault:
        marks = f"labels {PATCH_LABEL} and {HARDWARE_LABEL}, and the owner reference that controls it"
        findings.append(deny(_OWNERS, f"the patch controller would not write this rule: {fault}; leave out {marks}"))
    before = None if old is None else old.meta.annotations.get(REASONS)
    noted = (reasons and reasons != before) or (origin.of_reaction and not was.of_reaction)
    if noted and written_by_reaction(new) is None:
        text = "a reaction would not write this rule: its name, taint or selector is another one; leave out"
        findings.append(deny(_ANNOTATIONS.key(REASONS), f"{text} this annotation and label {REACTION}"))
    return tuple(milder(findings, mild=mode is not PolicyMode.ENFORCE, turned_down=True))


def _faults_of_marks(new: DeviceTaintRule, old: DeviceTaintRule | None, context: AdmissionContext) -> Iterator[str]:
    origin, sight = new.origin, context.sight
    if not origin.belongs_to:
        yield "its label and its controller do not name the same patch or rule"
    elif not is_named_for(origin.name, new):
        yield f"its name is none for this taint and selector of {origin.name}"
    elif sight is not None and sight.inventory is None:
        yield f"that cannot be checked: {sight.unknown}"
    elif sight is not None and sight.inventory is not None:
        written = _Written(new, old, origin, sight.inventory, context)
        yield from [each.error.detail for each in (written.for_patch() if origin.patch else written.for_hardware())]


class _Written:
    """One rule of the patch controller, and what it says that it was written for."""

    def __init__(
        self,
        new: DeviceTaintRule,
        old: DeviceTaintRule | None,
        origin: RuleOrigin,
        inventory: Inventory,
        context: AdmissionContext,
    ) -> None:
        self._new = new
        self._old = old
        self._origin = origin
        self._inventory = inventory
        self._context = context
        self._check: Check = partial(context.budget.check, "impact")

    # --- for a patch -----------------------------------------------------------------------------

    def for_patch(self) -> Iterator[Finding]:
        """Say why it is no part of its patch."""
        origin, patches = self._origin, self._context.patches
        if patches.unknown:
            yield deny(_OWNERS, f"cannot be checked: {patches.unknown}; {_RETRY}")
            return
        patch = patches.patches.get(origin.name)
        if patch is None or not origin.uid or patch.meta.uid != origin.uid:
            yield deny(_OWNERS, f"there is no ResourceSlicePatch {origin.name} with that UID")
            return
        if origin.of_patch != origin.uid:
            yield deny(_LABELS.key(PATCH_LABEL), "must be the UID of the patch")
        taint = self._new.taint
        like = next(
            (
                each
                for each in nominal_rules(patch)
                if each.taint.key == taint.key and each.taint.effect == taint.effect
            ),
            None,
        )
        if like is None:
            yield deny(TAINT, f"patch {origin.name} has no taint {taint.key}:{taint.effect}")
            return
        yield from self._like(like, f"patch {origin.name}")
        yield from self._within(patch)

    def _within(self, patch: ResourceSlicePatch) -> Iterator[Finding]:
        """Return whether the patch puts the taint on all devices that the rule selects."""
        selector, name = self._new.selector, patch.meta.name
        if selector is None or not can_judge(selector):
            yield deny(SELECTOR, "must consist of names")
            return
        reach = patch_reach(
            patch,
            self._context.patches,
            self._inventory.pools,
            self._check,
            self._context.budget.lasting(REACH_SECONDS),
            among=selector,
        )
        if reach.unknown:
            yield deny(SELECTOR, f"cannot be checked: {reach.unknown}; {_RETRY}")
            return
        own = patch.selector
        inside = can_judge(own) and narrower(selector, own)
        if reach.won is None:
            if not inside:
                yield deny(SELECTOR, f"selects more than the filter of patch {name}")
            return
        won = frozenset(reach.won.get(origin_of(self._new.taint), ()))
        selected = list(self._selected(selector))
        beyond = next((each for each in selected if each not in won), None)
        if beyond is not None:
            text = f"device {beyond} has no such taint by patch {name}: its filter leaves it out, or another patch wins"
            yield deny(SELECTOR, text)
        elif not selected and not inside:
            yield deny(SELECTOR, f"selects no published device, and is not within the names of patch {name}")
        elif not inside and None in (selector.driver, selector.pool, selector.device):
            in_use = self._inventory.usage.unpublished(self._inventory.pools, self._check)
            hidden = next((DeviceId(*each) for each in in_use if selects(selector, *each)), None)
            if hidden is not None:
                text = f"device {hidden} is in use and no slice shows it, so patch {name} does not select it"
                yield deny(SELECTOR, f"{text}; narrow the filter, so that rules for single devices will do")

    def _selected(self, selector: DeviceSelector) -> Iterator[DeviceId]:
        """Yield the published devices that the rule selects."""
        pools = self._inventory.pools.selected(selector.driver, selector.pool)
        for (driver, pool), found in in_steps(pools, self._check):
            names = found.devices if selector.device is None else {selector.device} & found.devices.keys()
            for device in names:
                yield DeviceId(driver, pool, device)

    # --- for the hardware of a rule --------------------------------------------------------------

    def for_hardware(self) -> Iterator[Finding]:
        """Say why it does not close a part of the hardware that its rule is about."""
        origin = self._origin
        owner = self._inventory.rules.get(origin.name)
        if owner is None or not origin.uid or owner.meta.uid != origin.uid or owner.deleting:
            yield deny(_OWNERS, f"there is no DeviceTaintRule {origin.name} with that UID")
            return
        if owner.meta.annotations.get(SCOPE) != HARDWARE:
            yield deny(_OWNERS, f"DeviceTaintRule {origin.name} has no annotation {SCOPE}: {HARDWARE}")
        if origin.hardware_of != origin.uid:
            yield deny(_LABELS.key(HARDWARE_LABEL), "must be the UID of the rule")
        not_copied = (SCOPE, CONFIRM_IMPACT, EVICT, SOFTENED_FROM)
        of_rule = {name: text for name, text in owner.meta.annotations.items() if name not in not_copied}
        yield from self._like(owner, f"DeviceTaintRule {origin.name}", of_rule)
        selector = self._new.selector
        if selector is None or not can_judge(selector) or not (selector.driver and selector.pool and selector.device):
            yield deny(SELECTOR, "must name a driver, a pool and a device")
        elif selector.device not in devices_beside(
            self._inventory.pools, owner, (selector.driver, selector.pool), self._check
        ):
            yield deny(SELECTOR, f"DeviceTaintRule {origin.name} selects no device on the hardware of this one")

    @property
    def _evicted_by_us(self) -> bool:
        """Whether our worker is to evict pods for the rule, so that it goes by its annotations."""
        literal = self._new.taint.effect == NO_EXECUTE
        return EVICT in self._new.meta.annotations or (literal and not self._context.in_tree)

    # --- both ------------------------------------------------------------------------------------

    def _like(
        self, like: DeviceTaintRule, what: str, annotations: Mapping[str, str] | None = None
    ) -> Iterator[Finding]:
        """Return whether it does no more than a rule like it on the same devices."""
        new, old = self._new, self._old
        if not is_same_taint(new.taint, like.taint):
            yield deny(TAINT, f"must be that of {what}")
        if new.taint.extras is not None:
            yield deny(TAINT, "must have no data, description or rate: those are annotations")
        earliest, added = like.taint.time_added, new.taint.time_added
        if earliest is not None and added is not None and added < earliest:
            yield deny(TAINT.child("timeAdded"), f"must not be before {format_time(earliest)}, as {what} has it")
        given = like.meta.annotations if annotations is None else annotations
        for name in ACTING_ANNOTATIONS:
            text = new.meta.annotations.get(name)
            if text is None and (name == EXPIRES_AT or not self._evicted_by_us):
                continue  # it does less
            stored = old is not None and text == old.meta.annotations.get(name)
            if text != given.get(name) and not stored:
                yield deny(_ANNOTATIONS.key(name), f"must be as {what} has it, or as it was stored")
