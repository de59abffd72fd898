"""Why a rule or a patch is over the limit of the policy that applies to it, and whether that reason can be softened.

A patch may put several taints on devices, and each may have another entry of the policy. The entry of a taint is for
everything that the patch hits, as it would be for the last of as many rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Final, NamedTuple

from msgspec import structs

from webhook.admission.confirmation import NOTHING, ImpactToConfirm, Numbers
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Assumed
from webhook.admission.impact_text import first_names, on_missing_selector, places_figures
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.recent_impact import (
    ClosedDevices,
    closed_together,
    closed_together_with_recent,
    hit_with_recent,
    limits_in_numbers,
    totals,
    yet_to_begin,
)
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import ResourceClaim
from webhook.api.messages import counted
from webhook.api.meta import format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceSelector, DeviceTaintRule, counted_pods
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.hardware import selectors_in_scope, siblings_of_rule
from webhook.inventory.impact import Impact, Taint, impact_of, joint_impact, with_companions, with_gangs
from webhook.inventory.placement import PodPlacement, Seeker, freed_claims, placements
from webhook.inventory.pools import Check, Evictor, in_steps
from webhook.inventory.rule_delta import EFFECT_RANK, begins_to_evict, is_wide, narrower
from webhook.inventory.state import Inventory
from webhook.inventory.supply import NotKnownError, Supply
from webhook.inventory.targets import DeviceNames
from webhook.patches.patch_reach import nominal_rules
from webhook.policy.limits import limits_for, protected_among, resolve_limit
from webhook.policy.match import Requester
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, Share, Softening

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
    """Return whether the requester may do without a confirmation."""
    return not frozenset(context.policy.impact.break_glass_groups).isdisjoint(request.groups)


def done_for(stored: DeviceTaintRule | ResourceSlicePatch | None, context: AdmissionContext) -> int:
    """Return how many pods were evicted for a stored rule or patch, and for what was expanded from it."""
    inventory = None if context.sight is None else context.sight.inventory
    if stored is None or inventory is None or not stored.meta.uid:
        return 0
    rules = in_steps(inventory.rules.values(), partial(context.budget.check, _PHASE))
    parts = [rule for rule in rules if stored.meta.uid in (rule.meta.uid, rule.origin.belongs_to)]
    return sum([counted_pods(rule.conditions) for rule in parts])


def is_backdated(new: DeviceTaintRule, old: DeviceTaintRule | None, now: datetime) -> bool:
    """Tell whether a grace period may be over before anyone can react: timeAdded is past for newly hit pods."""
    added = new.taint.time_added
    return added is not None and added < now - CLOCK_SKEW and begins_to_evict(new, old)


def is_backdated_patch(new: ResourceSlicePatch, old: ResourceSlicePatch | None, now: datetime) -> bool:
    """Tell the same of any taint of a patch; a stored one hits no pod newly unless more devices may be selected."""
    were: list[DeviceTaintRule | None] = [None]
    if old is not None and new.priority <= old.priority and narrower(new.selector, old.selector):
        were += [structs.replace(each, selector=new.selector) for each in nominal_rules(old)]
    return any(all(is_backdated(each, was, now) for was in were) for each in nominal_rules(new))


def selectors_beside(
    inventory: Inventory, rule: DeviceTaintRule, context: AdmissionContext
) -> tuple[DeviceSelector, ...]:
    """Return the other devices of the hardware for which the patch controller will add rules."""
    if not context.patch_account:
        return ()  # nothing reads /scope, or its rules are judged one by one
    return selectors_in_scope(inventory, rule, partial(context.budget.check, _PHASE))


class TaintCheck:
    """One taint on all of its devices, measured by the entry of the policy that applies.

    `old` is the rule as it was, for one that is updated. `beside` are the devices of a patch with several taints.
    """

    def __init__(
        self,
        rules: Sequence[DeviceTaintRule],
        beside: Sequence[DeviceNames],
        old: DeviceTaintRule | None,
        request: AdmissionRequest,
        context: AdmissionContext,
    ) -> None:
        self.rules = rules
        self.rule = rules[0]
        """The first of them; all have the same key and effect."""
        self._old = old
        self._beside = beside
        self._request = request
        self._context = context
        self._settings: ImpactSettings = context.policy.impact
        self._in_time: Check = partial(context.budget.check, _PHASE)
        self._evicts = self.rule.effective_effect == NO_EXECUTE

    @cached_property
    def limits(self) -> ImpactLimits:
        """The entry of the policy that applies."""
        requester = Requester(self._request.username, self._request.groups)
        return limits_for(self._settings, requester, self.rule.taint, self.rule.effective_effect, self._in_time)

    @property
    def is_literal(self) -> bool:
        """Whether the taint has effect NoExecute, rather than a form that evicts pods."""
        return self.rule.taint.effect == NO_EXECUTE

    def reasons_known(self) -> Iterator[LimitReason]:
        """Say why it is over the limit, whatever it hits."""
        selector = self.rule.selector
        if selector is None:
            yield LimitReason("no-selector", f"a rule without selector {on_missing_selector(self._context.servers)}")
        elif selector.empty:
            yield LimitReason("empty-selector", "an empty selector is every device of every driver")
        elif selector.unknown:
            text = "the selector has fields that are not known here, so it counts as every device"
            yield LimitReason("unknown-selector", text)
        elif is_wide(selector):
            yield LimitReason("unknown-selector", "nothing in the selector can be judged, so it counts as every device")
        added = self.rule.taint.time_added
        if added is not None and is_backdated(self.rule, self._old, self._context.now):
            text = f"timeAdded {format_time(added)} is past, so tolerationSeconds may be over"
            # A rule that is softened gets the time of the softening; one that still has such a time was not softened.
            yield LimitReason("backdated", text, softens=not self.rule.softened)

    def reasons_unknown(self, why: str, *, of_filter: bool) -> Iterator[LimitReason]:
        """Say why it counts as over the limit while its impact is not known; `why` says why not.

        Nothing tells how many devices it would close, so one with a limit on them is not softened. `of_filter`: because
        of what its author wrote into a filter, so a limit on devices holds for it, too, else that was a way around it.
        """
        yield from self.reasons_known()
        if self._settings.unknown_impact is not Action.DENY:
            return
        if self._evicts or (of_filter and self.limits.devices is not None):
            limits = self.limits
            countable = self._evicts and limits.devices is limits.claims is limits.pending_pods is None
            yield LimitReason("unknown", f"its impact is not known: {why}", softens=countable)

    def reasons(self, inventory: Inventory, impact: Impact, hit: ImpactToConfirm) -> Iterator[LimitReason]:
        """Say why the taint is over the limit."""
        yield from self.reasons_known()
        ceiling = limits_in_numbers(self.limits, inventory, self._in_time)
        own = self._closing(inventory)
        alone = closed_together(self.limits.devices, own, self._beside, inventory, self._context)
        over = _over(hit.numbers, ceiling, alone)
        if over:
            text = f"the limit is {_limits_text(over)}"
            if alone is not None and alone.over and alone.driver is not None and impact.drivers > 1:
                text += f"; it hits {counted(alone.devices, 'device')} of that driver"
            yield LimitReason(
                f"limit:{','.join(over)}", text, _driver_in(over), softens=over.keys() <= _SOFT, waits=True
            )
        elif self._settings.window_seconds:
            yield from self._in_window(inventory, impact, ceiling, own)
        if impact.places is not None:
            yield from self._pending(inventory, impact, impact.places)
        if hit.protected:
            subject, verb = ("namespaces", "are") if len(hit.protected) > 1 else ("namespace", "is")
            text = f"{subject} {first_names(hit.protected)} {verb} protected"
            yield LimitReason("protected", text, softens=True, waits=True)
        if self._evicts and self._settings.unknown_impact is Action.DENY:
            yield from _not_counted(impact, softens=self.limits.pending_pods is None)

    def _pending(self, inventory: Inventory, impact: Impact, places: Sequence[PodPlacement]) -> Iterator[LimitReason]:
        """Look at pods that would find no other device. The worker waits for none, so that cannot be softened."""
        limit = self.limits.pending_pods
        most = resolve_limit(limit, totals(inventory, self._in_time).pods if isinstance(limit, Share) else 0)
        pending, unknown = sum(each.none for each in places), sum(each.unknown for each in places)
        if most is None or not self._evicts or pending + unknown <= most:
            return
        texts = [*places_figures(impact)]
        if pending > most:
            yield LimitReason("limit:pendingPods", f"{texts[0]}, and the limit is {counted(most, 'such pod')}")
        elif self._settings.unknown_impact is Action.DENY:
            yield LimitReason(
                "unknown:pendingPods", f"{texts[-1]}, and the limit is {counted(most, 'pod')} that find none"
            )

    def _in_window(
        self, inventory: Inventory, impact: Impact, ceiling: Mapping[str, int | None], own: Sequence[DeviceNames]
    ) -> Iterator[LimitReason]:
        """Count many small rules as one large one."""
        together = NOTHING.numbers
        if impact.pods or impact.pod_groups:
            together = hit_with_recent(impact, inventory, self._context)
        closed = None
        if impact.devices:
            closed = closed_together_with_recent(self.limits.devices, own, self._beside, inventory, self._context)
        over = _over(together, ceiling, closed)
        if over:
            minutes = self._settings.window_seconds / 60
            hits = " and ".join(each.hit for each in over.values())
            later = " and rules yet to begin" if yet_to_begin(inventory, self._context) else ""
            text = f"with all other taints of the last {minutes:g} min{later} it hits {hits}, and the limit is"
            text = f"{text} {_limits_text(over)}"
            yield LimitReason(f"{_WINDOW}{','.join(over)}", text, _driver_in(over), softens=over.keys() <= _SOFT)

    def _closing(self, inventory: Inventory) -> Sequence[DeviceNames]:
        """Return the devices that the limit is for."""
        selectors = [rule.selector for rule in self.rules]
        selectors += selectors_beside(inventory, self.rule, self._context)
        return tuple(dict.fromkeys([DeviceNames.of(each, inventory.servers) for each in selectors]))

    def left_at_once(self, inventory: Inventory, impact: Impact) -> bool:
        """Return whether a NoExecute rule may have been left as it is by the /mutate of any replica.

        Each leaves what the limit allows, by what it knows. What the in-tree controller deletes counts here, and not
        what was softened meanwhile.
        """
        ceiling = limits_in_numbers(self.limits, inventory, self._in_time)
        together = hit_with_recent(impact, inventory, self._context, only_at_once=True)
        most = {name: None if limit is None else limit * AT_ONCE for name, limit in ceiling.items()}
        return not _over(together, most, None)


class PartReason(NamedTuple):
    """Why a rule or patch is over the limit, and the taint whose entry of the policy says so."""

    part: TaintCheck
    reason: LimitReason

    @property
    def may_soften(self) -> bool:
        """Whether /mutate may soften the taint, by the entry of the policy."""
        return self.reason.softens and self.part.limits.softens

    @property
    def excused(self) -> bool:
        """Whether the devices may be closed all the same: by the entry of the policy, and by the form of the taint."""
        return self.may_soften and self.part.rule.softened


class LimitCheck:
    """What a rule or patch does that it did not do before, as one impact, measured by the limits of its requester.

    `rules` say what that is: the rule itself, or those that say what a patch adds. If none acts, they are judged as if
    they evicted. `old` is the rule or patch as it was, None if it is created; `backdated` as in `GuardedChange`.
    """

    def __init__(
        self,
        rules: Sequence[DeviceTaintRule],
        old: DeviceTaintRule | ResourceSlicePatch | None,
        request: AdmissionRequest,
        context: AdmissionContext,
        *,
        backdated: bool = True,
    ) -> None:
        self._rules = rules
        self._old = old
        self._context = context
        self._in_tree = context.in_tree
        self.in_time: Check = partial(context.budget.check, _PHASE)
        """Raises OutOfTime; for loops over the inventory."""
        self._acting = [rule for rule in rules if rule.effective_effect in EFFECT_RANK]
        self.acts = bool(self._acting)
        by_taint: dict[tuple[str, str], list[DeviceTaintRule]] = {}
        for rule in self._acting:
            by_taint.setdefault((rule.taint.key, rule.taint.effect), []).append(rule)
        beside = self._names if len(by_taint) > 1 else ()
        was = old if isinstance(old, DeviceTaintRule) else None
        parts = [(each, was if backdated else each[0]) for each in by_taint.values()]
        self.parts = tuple([TaintCheck(each, beside, before, request, context) for each, before in parts])

    @property
    def leading(self) -> DeviceTaintRule:
        """The rule that does most: texts are about it."""
        if len(self._rules) == 1:
            return self._rules[0]
        return max(self._rules, key=lambda rule: EFFECT_RANK.get(rule.effective_effect, 0))

    def taint_of(self, rule: DeviceTaintRule) -> Taint:
        """Return its taint; if none of the rules acts, as if it evicted."""
        taint = Taint.of_rule(rule, in_tree=self._in_tree)
        return taint if self.acts else taint.as_if_evicting(in_tree=self._in_tree)

    def assumed(self, stored: tuple[DeviceTaintRule, ...], impact: Impact) -> Assumed | None:
        """Return what later reviews count until the rules are `stored`; None if nothing acts."""
        return Assumed(stored, self._names, impact) if self.acts else None

    @property
    def _names(self) -> tuple[DeviceNames, ...]:
        return tuple(dict.fromkeys([DeviceNames.of(rule.selector, self._context.servers) for rule in self._acting]))

    # --- the impact ------------------------------------------------------------------------------

    def impact(self, inventory: Inventory) -> Impact:
        """Return what all of it hits together; if it does nothing, what it would. Raises OutOfTime."""
        rules = self._acting or self._rules
        impact = self._without_places(inventory, rules)
        if not impact.pods or all(part.limits.pending_pods is None for part in self.parts):
            return impact
        taints = [
            (DeviceNames.of(selector, inventory.servers), taint.scheduling or taint.taint)
            for selector, taint in self._taints_of(inventory, rules)
        ]
        without = self._old.meta.name if isinstance(self._old, DeviceTaintRule) else ""
        return structs.replace(impact, places=_places_of(inventory, impact, taints, without, self._context))

    def _without_places(self, inventory: Inventory, rules: Sequence[DeviceTaintRule]) -> Impact:
        context, taints = self._context, self._taints_of(inventory, rules)
        ours = Evictor.OURS in [taint.evictor for _, taint in taints]
        if len(taints) == 1:
            impact = impact_of(inventory, rules[0].selector, taints[0][1], context.now, self.in_time)
        else:
            impact = joint_impact(inventory, taints, context.now, self.in_time)
        return with_companions(inventory, impact, Evictor.OURS if ours else None, context.pods, self.in_time)

    def _taints_of(
        self, inventory: Inventory, rules: Sequence[DeviceTaintRule]
    ) -> Sequence[tuple[DeviceSelector, Taint]]:
        taints = [(rule.selector or DeviceSelector(), self.taint_of(rule)) for rule in rules]
        if len(rules) == 1:
            # The patch controller copies the taint alone, so siblings of a rule with /evict keep their pods.
            copied = Taint.of_slice(rules[0].taint, in_tree=self._in_tree) if self.acts else taints[0][1]
            taints += [(each, copied) for each in selectors_beside(inventory, rules[0], self._context)]
        return taints

    def shown(self, inventory: Inventory, impact: Impact) -> Impact:
        """Return the impact with what only texts need: gangs, and other parts of the same hardware."""
        shown = with_gangs(inventory, impact, self._context.pods, self.in_time)
        if len(self._rules) > 1 or selectors_beside(inventory, self.leading, self._context):
            return shown
        effect = "" if self.acts else NO_EXECUTE
        return structs.replace(shown, siblings=siblings_of_rule(inventory, self.leading, effect, self.in_time))

    def to_confirm(self, impact: Impact) -> ImpactToConfirm:
        """Return the same as a text confirms it."""
        numbers = Numbers(impact.devices, len(impact.claims), len(impact.pods), len(impact.namespaces))
        match, facts_of = self._context.policy.impact.protected_namespaces, self._context.names.namespace
        protected = protected_among(match, impact.namespaces, facts_of, self.in_time)
        unknown = len(impact.pod_groups) + len(impact.incomplete_pools)
        return ImpactToConfirm(numbers, protected, unknown, done_for(self._old, self._context))

    # --- reasons ---------------------------------------------------------------------------------

    def reasons(self, inventory: Inventory, impact: Impact, hit: ImpactToConfirm) -> tuple[PartReason, ...]:
        """Say why it is over a limit; `impact` and `hit` are those of all of it."""
        return _each_once([each for part in self.parts for each in self._of_part(part, inventory, impact, hit)])

    def _of_part(
        self, part: TaintCheck, inventory: Inventory, impact: Impact, hit: ImpactToConfirm
    ) -> Iterator[PartReason]:
        if len(self.parts) > 1:
            own = self._without_places(inventory, part.rules)
            if not (own.pods or own.pod_groups):
                # As with rules: a taint that evicts no pod is not refused because of the pods of others.
                impact, hit = own, self.to_confirm(own)
        for reason in part.reasons(inventory, impact, hit):
            yield PartReason(part, reason)

    def reasons_known(self) -> tuple[PartReason, ...]:
        """Say why it is over a limit, whatever it hits."""
        return _each_once([PartReason(part, each) for part in self.parts for each in part.reasons_known()])

    def reasons_unknown(self, why: str, *, of_filter: bool) -> tuple[PartReason, ...]:
        """Say why it counts as over a limit while its impact is not known, as `TaintCheck.reasons_unknown` has it."""
        found = [(part, part.reasons_unknown(why, of_filter=of_filter)) for part in self.parts]
        return _each_once([PartReason(part, each) for part, reasons in found for each in reasons])

    def left_by_mutate(self, reasons: Sequence[PartReason], inventory: Inventory, impact: Impact) -> bool:
        """Tell whether some replica's /mutate may have left a NoExecute rule with only the window against it."""
        over = all(
            each.part.limits.soften is Softening.OVER and each.reason.short.startswith(_WINDOW) for each in reasons
        )
        return over and are_softened(reasons) and self.parts[0].left_at_once(inventory, impact)


def usual_rates(context: AdmissionContext) -> list[float]:
    """Return evictions per second that the policy gives to rules without a rate of their own."""
    return [profile.rate for profile in context.policy.eviction]


class _Over(NamedTuple):
    """What is hit and what the limit is, in words; `driver` is the one whose devices these are, for a share."""

    hit: str
    limit: str
    driver: str = ""


def _not_counted(impact: Impact, *, softens: bool) -> Iterator[LimitReason]:
    """Say what is unknown; `softens`: whether that of PodGroups may be softened, as no one asks for their places."""
    if impact.pod_groups:
        groups = counted(len(impact.pod_groups), "PodGroup")
        verb = "uses" if len(impact.pod_groups) == 1 else "use"
        yield LimitReason("pod-groups", f"{groups} of unknown size {verb} such devices", softens=softens)
    if impact.incomplete_pools:
        driver, pool = impact.incomplete_pools[0]
        text = f"pool {driver}/{pool} is being published, so devices are not all counted"
        yield LimitReason("incomplete", text, softens=True)


def _over(numbers: Numbers, ceiling: Mapping[str, int | None], closed: ClosedDevices | None) -> dict[str, _Over]:
    """Return the limits that are exceeded, by name."""
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


def are_softened(reasons: Iterable[PartReason]) -> bool:
    """Return whether /mutate softens NoExecute taints that are over the limit for these reasons."""
    return all(each.may_soften for each in reasons) and any(each.part.is_literal for each in reasons)


def _each_once(reasons: Sequence[PartReason]) -> tuple[PartReason, ...]:
    """Keep, of taints that have the same to say, the one that is least likely to be let through."""
    if len(reasons) < 2:
        return tuple(reasons)
    found: dict[LimitReason, PartReason] = {}
    for each in reasons:
        found[each.reason] = min(found.get(each.reason, each), each, key=_lenience)
    return tuple(found.values())


def _lenience(each: PartReason) -> tuple[bool, bool]:
    """Return whether the taint may be softened, and whether it is, by the entry of the policy that says so."""
    return each.part.limits.softens, each.excused


# --- where the pods of an impact would go -------------------------------------------------------------

_PLACING_SECONDS: Final = 0.1
_PLACED_MOST: Final = 5_000
"""For more pods it takes longer to say what they ask for."""


def _places_of(
    inventory: Inventory,
    impact: Impact,
    taints: Iterable[tuple[DeviceNames, DeviceTaint]],
    without: str,
    context: AdmissionContext,
) -> tuple[PodPlacement, ...]:
    """Return where the evicted pods would go under these taints and all others, but for those of the rule `without`.

    Nodes are not known here. Where pods are not followed, a pod has the claims that are reserved for it.
    """
    nameless = [Seeker("", "", ())] * len(impact.pods)
    if len(impact.pods) > _PLACED_MOST:
        return (PodPlacement.not_known(nameless, f"more than {_PLACED_MOST} pods are too many to place"),)
    go_on = context.budget.lasting(_PLACING_SECONDS)
    assumed = [(DeviceNames.of(rule.selector, inventory.servers), rule.taint) for rule in context.assumed]

    def look() -> None:
        if not go_on():
            raise NotKnownError("it takes too long to look at all claims")

    try:
        seekers = list(_seekers(inventory, impact, look))
        supply = Supply(
            inventory,
            classes=None if context.patches.unknown else context.patches.classes or None,
            nodes=None,
            freed=freed_claims(seekers, impact.pods),
            taints=[*assumed, *taints],
            without=without,
            go_on=go_on,
        )
    except NotKnownError as error:
        return (PodPlacement.not_known(nameless, str(error)),)
    return placements(inventory, seekers, supply)


def _seekers(inventory: Inventory, impact: Impact, check: Check) -> Iterable[Seeker]:
    hit: dict[str, tuple[str, str, list[ResourceClaim]]] = {}
    uids = impact.pods
    claims: Iterable[ResourceClaim] = inventory.claims.values()
    if inventory.pods:
        claims = map(inventory.claims.__getitem__, impact.claims)
    for claim in in_steps(claims, check):
        for consumer in claim.reserved_for:
            if consumer.uid in uids:
                hit.setdefault(consumer.uid, (claim.meta.namespace, consumer.name, []))[2].append(claim)
    for uid, (namespace, name, claims) in hit.items():
        pod = inventory.pods.get(f"{namespace}/{name}")
        known = pod is not None and pod.meta.uid == uid
        yield Seeker.of(pod, inventory.claims_of(pod)) if pod and known else Seeker(namespace, name, tuple(claims))
