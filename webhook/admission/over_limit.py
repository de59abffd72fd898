"""Why a rule or a patch is over the limit of the policy that applies to it, and whether that reason can be softened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, NamedTuple

from msgspec import structs

from webhook.admission.confirmation import NOTHING, ImpactToConfirm, Numbers
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Assumed
from webhook.admission.impact_text import first_names, on_missing_selector
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.recent_impact import (
    ClosedDevices,
    closed_together,
    closed_together_with_recent,
    hit_with_recent,
    limits_in_numbers,
    yet_to_begin,
)
from webhook.admission.review import AdmissionRequest
from webhook.api.counts import counted
from webhook.api.meta import format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceSelector, DeviceTaintRule, counted_pods
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.hardware import selectors_in_scope, siblings_of_rule
from webhook.inventory.impact import Impact, Taint, impact_of, joint_impact, with_companions, with_gangs
from webhook.inventory.pools import Check, Evictor, in_steps
from webhook.inventory.rule_delta import EFFECT_RANK, begins_to_evict, is_wide, skips_a_step
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames
from webhook.policy.impact_limits import limits_for, protected_among
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, InTreeEvictor, Softening
from webhook.policy.ports import Requester

AT_ONCE: Final = 3
"""Replicas whose /mutate may each leave rules of one instant as NoExecute, up to the limit, before they know of each
other. /validate of any of them must not refuse what they left: its author would not try again."""
_SOFT: Final = frozenset({"pods", "namespaces"})
"""Limits that the eviction worker keeps as well, so a rule over them may be softened. Closing its devices is what a
limit on devices is about, and the worker does not count claims."""
_WINDOW: Final = "window:"
_PHASE: Final = "impact"


class LimitReason(NamedTuple):
    """Why an impact is over the limit: a short form for the audit log, a sentence, and the driver that it is about."""

    short: str
    text: str
    driver: str = ""
    softens: bool = False
    """Whether the devices may be closed all the same, because the worker or the softening takes care of the rest."""
    waits: bool = False
    """Whether the worker evicts no pod of such a rule until the impact is confirmed."""


def breaks_glass(request: AdmissionRequest, context: AdmissionContext) -> bool:
    """Whether the requester may do without a confirmation."""
    return not frozenset(context.policy.impact.break_glass_groups).isdisjoint(request.groups)


def done_for(stored: DeviceTaintRule | ResourceSlicePatch | None, context: AdmissionContext) -> int:
    """Return how many pods were evicted for a stored rule or patch, and for what was expanded from it."""
    inventory = None if context.sight is None else context.sight.inventory
    if stored is None or inventory is None or not stored.meta.uid:
        return 0
    rules = in_steps(inventory.rules.values(), partial(context.budget.check, _PHASE))
    parts = [rule for rule in rules if stored.meta.uid in (rule.meta.uid, rule.origin.belongs_to)]
    return sum([counted_pods(rule.conditions) for rule in parts])


class LimitCheck:
    """One rule that is created (`old` is None) or updated, measured by the limits of its requester."""

    def __init__(
        self, new: DeviceTaintRule, old: DeviceTaintRule | None, request: AdmissionRequest, context: AdmissionContext
    ) -> None:
        self._new = new
        self._old = old
        self._request = request
        self._context = context
        self._settings: ImpactSettings = context.policy.impact
        self.in_time: Check = partial(context.budget.check, _PHASE)
        """Raises OutOfTime; for loops over the inventory."""
        self.in_tree = context.policy.in_tree_evictor is InTreeEvictor.ACTIVE
        self.effect = new.effective_effect
        self.acts = self.effect in EFFECT_RANK
        self.evicts = self.effect == NO_EXECUTE
        self.taint = Taint.of_rule(new, in_tree=self.in_tree)

    @cached_property
    def limits(self) -> ImpactLimits:
        """The entry of the policy that applies."""
        requester = Requester(self._request.username, self._request.groups)
        return limits_for(self._settings, requester, self._new.taint, self.effect, self.in_time)

    @property
    def softens(self) -> bool:
        """Whether the entry softens rules at all. The rule has no say in it."""
        return self.limits.softens

    @property
    def backdated(self) -> bool:
        """Whether a grace period may be over before anyone can react: timeAdded is past for pods that are newly hit."""
        added = self._new.taint.time_added
        past = added is not None and added < self._context.now - CLOCK_SKEW
        return past and begins_to_evict(self._new, self._old)

    # --- the impact ------------------------------------------------------------------------------

    def impact(self, inventory: Inventory, taint: Taint | None = None) -> Impact:
        """What the rule hits, or what it would hit with another taint. Raises OutOfTime."""
        # The patch controller copies the taint alone, so siblings of a rule with /evict keep their pods.
        of_siblings = taint or Taint.of_slice(self._new.taint, in_tree=self.in_tree)
        taint = taint or self.taint
        beside = self.beside(inventory)
        if beside and self._new.selector is not None:
            taints = [(self._new.selector, taint), *[(each, of_siblings) for each in beside]]
            impact = joint_impact(inventory, taints, self._context.now, self.in_time)
        else:
            impact = impact_of(inventory, self._new.selector, taint, self._context.now, self.in_time)
        return with_companions(inventory, impact, taint.evictor, self._context.pods, self.in_time)

    def beside(self, inventory: Inventory) -> tuple[DeviceSelector, ...]:
        """The other devices of the hardware for which the patch controller will add rules."""
        if not self._context.patch_account:
            return ()  # nothing reads /scope, or its rules are judged one by one
        return selectors_in_scope(inventory, self._new, self.in_time)

    def assumed(self, impact: Impact) -> Assumed:
        """The rule as later reviews count it until it is stored."""
        return Assumed((self._new,), (DeviceNames.of(self._new.selector, self._context.servers),), impact)

    def with_gangs(self, inventory: Inventory, impact: Impact) -> Impact:
        """The same impact with the gangs that it breaks, where pods are known. Raises OutOfTime."""
        return with_gangs(inventory, impact, self._context.pods, self.in_time)

    def to_confirm(self, impact: Impact) -> ImpactToConfirm:
        """Return the same as a text confirms it."""
        numbers = Numbers(impact.devices, len(impact.claims), len(impact.pods), len(impact.namespaces))
        match, facts_of = self._settings.protected_namespaces, self._context.names.namespace
        protected = protected_among(match, impact.namespaces, facts_of, self.in_time)
        unknown = len(impact.pod_groups) + len(impact.incomplete_pools)
        return ImpactToConfirm(numbers, protected, unknown, done_for(self._old, self._context))

    # --- reasons ---------------------------------------------------------------------------------

    def reasons_known(self) -> Iterator[LimitReason]:
        """Why the rule is over the limit, whatever it hits."""
        selector = self._new.selector
        if selector is None:
            yield LimitReason("no-selector", f"a rule without selector {on_missing_selector(self._context.servers)}")
        elif selector.empty:
            yield LimitReason("empty-selector", "an empty selector is every device of every driver")
        elif selector.unknown:
            text = "the selector has fields that are not known here, so it counts as every device"
            yield LimitReason("unknown-selector", text)
        elif is_wide(selector):
            yield LimitReason("unknown-selector", "nothing in the selector can be judged, so it counts as every device")
        if self.backdated:
            assert self._new.taint.time_added is not None
            text = f"timeAdded {format_time(self._new.taint.time_added)} is past, so tolerationSeconds may be over"
            # A rule that is softened gets the time of the softening; one that still has such a time was not softened.
            yield LimitReason("backdated", text, softens=not self._new.softened)

    def reasons_unknown(self, why: str) -> Iterator[LimitReason]:
        """Why the rule counts as over the limit while its impact is not known; `why` says why not.

        Nothing tells how many devices it would close, so one with a limit on them is not softened.
        """
        yield from self.reasons_known()
        if self.evicts and self._settings.unknown_impact is Action.DENY:
            countable = self.limits.devices is None and self.limits.claims is None
            yield LimitReason("unknown", f"its impact is not known: {why}", softens=countable)

    def reasons(self, inventory: Inventory, impact: Impact, hit: ImpactToConfirm) -> Iterator[LimitReason]:
        """Why the rule is over the limit."""
        yield from self.reasons_known()
        ceiling = limits_in_numbers(self.limits, inventory, self.in_time)
        alone = closed_together(self.limits.devices, *self._closing(inventory), inventory, self._context)
        over = _over(hit.numbers, ceiling, alone)
        if over:
            text = f"the limit is {_limits_text(over)}"
            if alone is not None and alone.over and alone.driver is not None and impact.drivers > 1:
                text += f"; it hits {counted(alone.devices, 'device')} of that driver"
            yield LimitReason(
                f"limit:{','.join(over)}", text, _driver_in(over), softens=over.keys() <= _SOFT, waits=True
            )
        elif self._settings.window_seconds:
            yield from self._in_window(inventory, impact, ceiling)
        if hit.protected:
            subject, verb = ("namespaces", "are") if len(hit.protected) > 1 else ("namespace", "is")
            text = f"{subject} {first_names(hit.protected)} {verb} protected"
            yield LimitReason("protected", text, softens=True, waits=True)
        if self.evicts and self._settings.unknown_impact is Action.DENY:
            yield from _not_counted(impact)

    def _in_window(
        self, inventory: Inventory, impact: Impact, ceiling: Mapping[str, int | None]
    ) -> Iterator[LimitReason]:
        """Many small rules are one large one."""
        together = NOTHING.numbers
        if impact.pods or impact.pod_groups:
            together = hit_with_recent(impact, inventory, self._context, in_tree=self.in_tree)
        closed = None
        if impact.devices:
            own, beside = self._closing(inventory)
            closed = closed_together_with_recent(self.limits.devices, own, beside, inventory, self._context)
        over = _over(together, ceiling, closed)
        if over:
            minutes = self._settings.window_seconds / 60
            hits = " and ".join(each.hit for each in over.values())
            later = " and rules yet to begin" if yet_to_begin(inventory, self._context, in_tree=self.in_tree) else ""
            text = f"with all other taints of the last {minutes:g} min{later} it hits {hits}, and the limit is"
            text = f"{text} {_limits_text(over)}"
            yield LimitReason(f"{_WINDOW}{','.join(over)}", text, _driver_in(over), softens=over.keys() <= _SOFT)

    def _closing(self, inventory: Inventory) -> tuple[Sequence[DeviceNames], Sequence[DeviceNames]]:
        """The devices that the limit is for, and those that are closed beside them."""
        selectors = (self._new.selector, *self.beside(inventory))
        return tuple([DeviceNames.of(each, inventory.servers) for each in selectors]), ()

    def may_soften(self, reasons: Iterable[LimitReason]) -> bool:
        """Whether /mutate softens a NoExecute rule that is over the limit for these reasons."""
        twice = self._settings.two_step and skips_a_step(self._new, self._old)
        return self.softens and self._new.taint.effect == NO_EXECUTE and not twice and all_soften(reasons)

    def may_be_left(self, reasons: Iterable[LimitReason]) -> bool:
        """Whether only other rules of the window speak against a NoExecute rule that might have been softened."""
        over = self.limits.soften is Softening.OVER
        return over and self.may_soften(reasons) and all(each.short.startswith(_WINDOW) for each in reasons)

    def left_at_once(self, inventory: Inventory, impact: Impact) -> bool:
        """Whether a NoExecute rule may have been left as it is by the /mutate of any replica.

        Each leaves what the limit allows, by what it knows. What the in-tree controller deletes counts here, and not
        what was softened meanwhile.
        """
        ceiling = limits_in_numbers(self.limits, inventory, self.in_time)
        together = hit_with_recent(impact, inventory, self._context, in_tree=self.in_tree, only_at_once=True)
        most = {name: None if limit is None else limit * AT_ONCE for name, limit in ceiling.items()}
        return not _over(together, most, None)


def usual_rates(context: AdmissionContext) -> list[float]:
    """Evictions per second that the policy gives to rules without a rate of their own."""
    return [profile.rate for profile in context.policy.eviction]


class _Over(NamedTuple):
    """What is hit and what the limit is, in words; `driver` is the one whose devices these are, for a share."""

    hit: str
    limit: str
    driver: str = ""


def _not_counted(impact: Impact) -> Iterator[LimitReason]:
    if impact.pod_groups:
        groups = counted(len(impact.pod_groups), "PodGroup")
        verb = "uses" if len(impact.pod_groups) == 1 else "use"
        yield LimitReason("pod-groups", f"{groups} of unknown size {verb} such devices", softens=True)
    if impact.incomplete_pools:
        driver, pool = impact.incomplete_pools[0]
        text = f"pool {driver}/{pool} is being published, so devices are not all counted"
        yield LimitReason("incomplete", text, softens=True)


def _over(numbers: Numbers, ceiling: Mapping[str, int | None], closed: ClosedDevices | None) -> dict[str, _Over]:
    """The limits that are exceeded, by name."""
    found = {}
    if closed is not None and closed.over:
        of = "" if closed.driver is None else f" of driver {closed.driver}"
        hit, most = counted(closed.devices, "device"), counted(closed.limit, "device")
        found["devices"] = _Over(f"{hit}{of}", f"{most}{of}", closed.driver or "")
    for name, limit in ceiling.items():
        number = getattr(numbers, name)
        if limit is not None and number > limit:
            noun = name.removesuffix("s")
            found[name] = _Over(counted(number, noun), counted(limit, noun))
    return found


def _limits_text(over: Mapping[str, _Over]) -> str:
    return " and ".join(each.limit for each in over.values())


def _driver_in(over: Mapping[str, _Over]) -> str:
    return next((each.driver for each in over.values() if each.driver), "")


def all_soften(reasons: Iterable[LimitReason]) -> bool:
    """Whether a rule that is over the limit for these reasons may be softened."""
    return all(each.softens for each in reasons)


# --- patches --------------------------------------------------------------------------------------


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
            yield LimitReason("unknown", f"its impact is not known: {why}")

    def _closing(self, _inventory: Inventory) -> tuple[Sequence[DeviceNames], Sequence[DeviceNames]]:
        return self._own, self._beside


class PartReason(NamedTuple):
    """Why a patch is over the limit, and the taint whose entry of the policy says so."""

    part: PartCheck
    reason: LimitReason

    @property
    def excused(self) -> bool:
        """Whether the devices may be closed all the same: by the entry of the policy, and by the form of the taint."""
        return self.part.softens and self.part.softened and self.reason.softens


class PatchCheck:
    """What a patch does that it did not do before, as one impact, measured by the limits of its requester.

    A patch may put several taints on devices, and each may have another entry of the policy. The entry of a taint is
    for everything that the patch hits, as it would be for the last of as many rules.

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
        """The rule that does most: texts are about it."""
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
