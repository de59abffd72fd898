"""DeviceTaintRule, its selector, and our annotations on it. Source: KEP-5055; `semantics.md` R-*."""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import Final

import msgspec

from webhook.api.decode import Reader
from webhook.api.field import JSON
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind, ObjectMeta, parse_time
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint, decode_taint

DATA: Final = f"{OWN_GROUP}/data"
DESCRIPTION: Final = f"{OWN_GROUP}/description"
EVICTIONS_PER_SECOND: Final = f"{OWN_GROUP}/evictions-per-second"
EVICT: Final = f"{OWN_GROUP}/evict"
EXPIRES_AT: Final = f"{OWN_GROUP}/expires-at"
OWNER: Final = f"{OWN_GROUP}/owner"
TICKET: Final = f"{OWN_GROUP}/ticket"
NOT_BEFORE: Final = f"{OWN_GROUP}/not-before"
"""Annotation: our worker evicts no pod for the rule before this time."""
CONFIRM_IMPACT: Final = f"{OWN_GROUP}/confirm-impact"
SOFTENED_FROM: Final = f"{OWN_GROUP}/softened-from"
"""The effect that the author asked for, on a rule that `/mutate` softened. It only makes the worker stricter."""
SCOPE: Final = f"{OWN_GROUP}/scope"
HARDWARE: Final = "hardware"
"""Value of `/scope`: the patch controller adds rules for the other devices of the same hardware."""
PATCH_LABEL: Final = f"{OWN_GROUP}/patch"
"""Label of a rule that a patch was expanded into: the patch's uid."""
HARDWARE_LABEL: Final = f"{OWN_GROUP}/hardware-of"
"""Label of a rule that `/scope: hardware` of another rule added: that rule's uid."""
RULE_ANNOTATIONS: Final = frozenset(
    {
        *(DATA, DESCRIPTION, EVICTIONS_PER_SECOND, EVICT, EXPIRES_AT, OWNER, TICKET, CONFIRM_IMPACT, SOFTENED_FROM),
        *(NOT_BEFORE, SCOPE),
    }
)
ACTING_ANNOTATIONS: Final = (EVICT, SOFTENED_FROM, EVICTIONS_PER_SECOND, NOT_BEFORE, EXPIRES_AT, CONFIRM_IMPACT, SCOPE)
"""Annotations that change what a rule does, or how much it may."""
REACTION: Final = f"{OWN_GROUP}/reaction"
"""Label, `"true"` on the rules of reactions."""
REASONS: Final = f"{OWN_GROUP}/reasons"
"""What our controller notes on a rule of a reaction, as JSON. It means nothing on other rules."""
NOTED_ANNOTATIONS: Final = frozenset({REASONS})
"""Annotations that only our controllers write and read."""
NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""What `/not-before` means if it is no time."""

EVICTED_PODS: Final = f"{OWN_GROUP}/EvictedPods"
"""Condition, set once a pod was evicted for the rule; the message is the count since it was created, in digits."""
COUNTED_PODS: Final = f"{OWN_GROUP}/CountedPods"
"""Condition, set once another number of pods counts against the rule's ceiling; the message is it, in digits."""
_DIGITS_MOST: Final = 9

OWN_RATE_BURST: Final = 10
"""Burst of a taint with a rate of its own (N-13)."""
_RATE_DIGITS: Final = 19
"""A patch may have any int64."""
UNKNOWN_FIELDS_MAX: Final = 32
"""Unknown fields of a selector that are kept."""
_SELECTOR_FIELDS: Final = frozenset({"driver", "pool", "device", "deviceClassName", "selectors"})


class CELSelector(msgspec.Struct, frozen=True, gc=False):
    """One entry of `selectors`; `expression` is None when there is no `cel` at all."""

    expression: str | None


class DeviceSelector(msgspec.Struct, frozen=True, gc=False):
    """Which devices: all that is set must hold; an empty selector selects every device.

    `unknown` holds fields that this code does not know, by name, each with its value as canonical JSON. What they
    select cannot be judged, alone or beside known fields, and must never be taken for "nothing". Of more than
    UNKNOWN_FIELDS_MAX of them the last entry stands for all that are not listed. Class and CEL selectors exist in 1.33
    and 1.34, and in ResourceSlicePatch.
    """

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: tuple[CELSelector, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing narrows it down."""
        return self == _EVERY_DEVICE


_EVERY_DEVICE: Final = DeviceSelector()


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A status condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None


class RuleOrigin(msgspec.Struct, frozen=True, gc=False):
    """What a rule was written for, as it says itself: its controller, maybe a patch or a rule, and its labels."""

    name: str = ""
    uid: str = ""
    patch: bool = False
    rule: bool = False
    of_patch: str = ""
    hardware_of: str = ""
    of_reaction: bool = False

    @property
    def belongs_to(self) -> str:
        """The UID of the patch or rule that both its controller and its label name; empty if there is none."""
        label = self.of_patch if self.patch else self.hardware_of if self.rule else ""
        return self.uid if self.uid == label else ""


class DeviceTaintRule(msgspec.Struct, frozen=True, gc=False):
    """A taint for every device that the selector matches. A missing selector is None (R-2)."""

    meta: ObjectMeta
    selector: DeviceSelector | None
    taint: DeviceTaint
    conditions: tuple[Condition, ...] = ()
    generation: int = 0
    """Moves with the specification only; 0 in a manifest that no server has seen."""
    deleting: bool = False
    """Whether it has a deletionTimestamp: it is gone once its finalizers are."""
    origin: RuleOrigin = RuleOrigin()
    """What our controller wrote it for. Anyone who may write rules can set these marks."""

    @property
    def effective_effect(self) -> str:
        """`NoExecute` also when our worker is asked to empty the devices."""
        return NO_EXECUTE if self.meta.annotations.get(EVICT) == "true" else self.taint.effect

    @property
    def softened(self) -> bool:
        """Whether it has the form that softening gives to a NoExecute rule."""
        marked = self.meta.annotations.get(SOFTENED_FROM) == NO_EXECUTE
        return marked and self.taint.effect == NO_SCHEDULE and self.effective_effect == NO_EXECUTE


def not_before_of(rule: DeviceTaintRule) -> datetime | None:
    """The time of `/not-before`; None without it, and NEVER if it is no time."""
    text = rule.meta.annotations.get(NOT_BEFORE)
    return None if text is None else parse_time(text) or NEVER


def own_rate(rule: DeviceTaintRule) -> float | None:
    """The evictions per second that the rule brings with it, as annotation or in its taint; None: the policy's hold.

    A text that is no whole number of one to 19 digits above zero counts as none.
    """
    text = rule.meta.annotations.get(EVICTIONS_PER_SECOND, "")
    if text.isascii() and text.isdigit() and len(text) <= _RATE_DIGITS and int(text):
        return float(text)
    extras = rule.taint.extras
    return float(extras.evictions_per_second) if extras is not None and extras.evictions_per_second else None


def decode_rule(reader: Reader) -> DeviceTaintRule:
    """A DeviceTaintRule of any version."""
    spec = reader.child_or_empty("spec")
    selector = spec.child("deviceSelector")
    metadata = reader.child_or_empty("metadata")
    return DeviceTaintRule(
        reader.meta(),
        None if selector is None else decode_selector(selector),
        decode_taint(spec.child_or_empty("taint")),
        decode_conditions(reader),
        metadata.integer("generation") or 0,
        metadata.has("deletionTimestamp"),
        _decode_origin(metadata.raw),
    )


_NO_ORIGIN: Final = RuleOrigin()


def _decode_origin(raw: dict[str, JSON]) -> RuleOrigin:
    if "labels" not in raw and "ownerReferences" not in raw:
        return _NO_ORIGIN
    metadata = Reader(raw, [])  # its faults are the API server's to report
    labels = metadata.child_or_empty("labels")
    found = RuleOrigin(
        of_patch=labels.text(PATCH_LABEL),
        hardware_of=labels.text(HARDWARE_LABEL),
        of_reaction=labels.text(REACTION) == "true",
    )
    owner = next((each for each in metadata.each("ownerReferences") if each.boolean("controller")), None)
    if owner is None:
        return found
    group, _, kind = GroupVersionKind.parse(owner.text("apiVersion"), owner.text("kind"))
    return msgspec.structs.replace(
        found,
        name=owner.text("name"),
        uid=owner.text("uid"),
        patch=(group, kind) == (OWN_GROUP, "ResourceSlicePatch"),
        rule=(group, kind) == (GROUP, "DeviceTaintRule"),
    )


def decode_selector(reader: Reader) -> DeviceSelector:
    """A device selector (or the `filter` of a patch), with the retired fields."""
    return DeviceSelector(
        reader.optional_text("driver"),
        reader.optional_text("pool"),
        reader.optional_text("device"),
        reader.optional_text("deviceClassName"),
        decode_cel_selectors(reader),
        _unknown_fields(reader),
    )


def _unknown_fields(reader: Reader) -> tuple[tuple[str, str], ...]:
    if reader.raw.keys() <= _SELECTOR_FIELDS:
        return ()
    unknown = (name for name, value in reader.raw.items() if name not in _SELECTOR_FIELDS and value is not None)
    names = list(islice(unknown, UNKNOWN_FIELDS_MAX + 1))
    if len(names) <= UNKNOWN_FIELDS_MAX:
        return tuple([(name, _canonical(reader.raw[name])) for name in sorted(names)])
    listed = [(name, _canonical(reader.raw[name])) for name in sorted(names[: UNKNOWN_FIELDS_MAX - 1])]
    # To sort them all, or to write them as JSON, takes long. What came in another order may count as something else.
    return *listed, ("further fields", sha256(marshal.dumps(reader.raw, 0)).hexdigest())


def _canonical(value: JSON) -> str:
    """The same text for the same value, in whatever order its keys came; half surrogates are escaped."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def decode_cel_selectors(reader: Reader) -> tuple[CELSelector, ...]:
    """The `selectors` of a filter, a device class, or a rule of 1.33 and 1.34."""
    if not reader.has("selectors"):
        return ()
    return tuple(
        [
            CELSelector(None if (cel := each.child("cel")) is None else cel.text("expression"))
            for each in reader.each("selectors")
        ]
    )


def decode_conditions(reader: Reader) -> tuple[Condition, ...]:
    """The conditions in the status of an object, of whatever kind."""
    status = reader.child("status")
    return () if status is None else tuple([decode_condition(each) for each in status.each("conditions")])


def decode_condition(reader: Reader) -> Condition:
    """One of them."""
    return Condition(
        reader.text("type"),
        reader.text("status"),
        reader.text("reason"),
        reader.text("message"),
        reader.integer("observedGeneration") or 0,
        reader.time("lastTransitionTime"),
    )


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of type `kind`, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def evicted_pods(conditions: Iterable[Condition]) -> int:
    """Return the number of pods evicted for the rule, from its conditions, so that progress survives a restart."""
    return _count_in(condition_of(conditions, EVICTED_PODS)) or 0


def counted_pods(conditions: Iterable[Condition]) -> int:
    """Return how many evicted pods count against the rule's ceiling, from its conditions."""
    counted = _count_in(condition_of(conditions, COUNTED_PODS))
    return evicted_pods(conditions) if counted is None else counted


def _count_in(condition: Condition | None) -> int | None:
    if condition is None or not condition.message.isdecimal() or len(condition.message) > _DIGITS_MOST:
        return None
    return int(condition.message)
