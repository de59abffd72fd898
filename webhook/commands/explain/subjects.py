"""What `explain` may be asked about besides files and codes, and its answer: a pod, a claim, a device or a rule."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import format_time
from webhook.commands.explain.objects import (
    claim_values,
    device_explanation,
    known_devices,
    pod_explanation,
    reported_values,
    rule_explanation,
)
from webhook.commands.shared.words import DEVICES, RULES, type_in
from webhook.commands.status.report import worker_values
from webhook.config.command_line import did_you_mean
from webhook.inventory.published import DeviceId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.commands.explain.facts import ExplainFacts

_PARTS: Final = 3
VERSION: Final = 1
_NAMED_MOST: Final = 3


class SubjectKind(StrEnum):
    """The kinds; the values are those of the JSON."""

    POD = "Pod"
    CLAIM = "ResourceClaim"
    DEVICE = "Device"
    RULE = "DeviceTaintRule"


KINDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), SubjectKind.POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), SubjectKind.CLAIM),
    **dict.fromkeys(DEVICES, SubjectKind.DEVICE),
    **dict.fromkeys(RULES, SubjectKind.RULE),
}
"""By the words for them, as kubectl has them for resources."""


class ExplainSubject(NamedTuple):
    """What is asked about. `name` of a device is `driver/pool/device`; `namespace` is empty unless it is given."""

    kind: SubjectKind
    name: str
    namespace: str = ""


def subject_in(words: Sequence[str]) -> ExplainSubject | None:
    """The subject that words name, as `pod NAME`, `pod/NAME` or `pod/NAMESPACE/NAME`; None if they are files or codes.

    A file of the name of a kind is named with its folder: `./pod`. Raises ValueError for a subject that is incomplete.
    """
    kind = KINDS.get(type_in(words[0]))
    name = "/".join(words[1:])
    if kind is None and len(words) == 1:
        word, _, name = words[0].partition("/")
        kind = KINDS.get(type_in(word)) if name else None
    if kind is None:
        return None
    if not name or len(words) > 2:
        raise ValueError(f"explains one {words[0]} at a time; name it after that word")
    if kind is SubjectKind.DEVICE and (name.count("/") < _PARTS - 1 or not all(name.split("/"))):
        raise ValueError("a device is named as DRIVER/POOL/DEVICE, as `list` shows it")
    if kind in (SubjectKind.POD, SubjectKind.CLAIM) and "/" in name:
        namespace, _, name = name.partition("/")
        if not namespace or not name or "/" in name:
            raise ValueError(f"a {kind} is named as NAME or NAMESPACE/NAME")
        return ExplainSubject(kind, name, namespace)
    return ExplainSubject(kind, name)


def device_parts(name: str) -> tuple[str, str, str]:
    """Driver, pool and device of a name; only the pool may have slashes."""
    driver, _, rest = name.partition("/")
    pool, _, device = rest.rpartition("/")
    return driver, pool, device


_NEEDED: Final = {
    SubjectKind.POD: "Pod",
    SubjectKind.CLAIM: "ResourceClaim",
    SubjectKind.DEVICE: "ResourceSlice",
    SubjectKind.RULE: "DeviceTaintRule",
}
"""The kind without which there is nothing to explain."""


class NotExplained(Exception):  # noqa: N818 -- it says what came of it
    """There is no such object, or it may not be read; the text says which."""


def explanation_of(facts: ExplainFacts, subject: ExplainSubject) -> dict[str, Any]:
    """The values behind JSON, YAML and text. Raises NotExplained."""
    settings = facts.settings
    return {
        "version": VERSION,
        "source": facts.source,
        "server": facts.server,
        "time": format_time(settings.now),
        "kind": subject.kind.value,
        "worker": worker_values(settings),
        **_values(facts, subject),
        "unknown": list(facts.unknown),
        "findings": [finding for row in facts.rows for finding in row.findings],
    }


def _values(facts: ExplainFacts, subject: ExplainSubject) -> dict[str, Any]:
    inventory, name = facts.objects.inventory, subject.name
    key = f"{facts.namespace}/{name}"
    match subject.kind:
        case SubjectKind.POD if key in inventory.pods:
            return pod_explanation(facts, inventory.pods[key])
        case SubjectKind.POD if key in facts.pods:
            return {"namespace": facts.namespace, "name": name, "claims": [], "evictions": [], "reported": []}
        case SubjectKind.CLAIM if key in inventory.claims:
            found = claim_values(facts, key)
            rules = {taint["rule"] for device in found["devices"] for taint in device["taints"] if taint["rule"]}
            return {**found, "reported": reported_values(facts, rules)}
        case SubjectKind.DEVICE if name in set(known_devices(facts)):
            return device_explanation(facts, DeviceId(*device_parts(name)))
        case SubjectKind.RULE if name in inventory.rules:
            return rule_explanation(facts, inventory.rules[name])
        case _:
            raise NotExplained(_why_not(facts, subject))


def _why_not(facts: ExplainFacts, subject: ExplainSubject) -> str:
    """Why a subject is not explained: it is not there, or nothing of its kind is known."""
    kind = _NEEDED[subject.kind]
    if kind in facts.missing:
        reasons = [each for each in facts.unknown if kind in each or f"{kind.lower()}s" in each]
        why = f": {reasons[0].partition(': ')[2]}" if reasons else ""
        return f"it is not known whether there is a {subject.kind.value} {subject.name!r}{why}"
    if subject.kind in (SubjectKind.DEVICE, SubjectKind.RULE):
        known = known_devices(facts) if subject.kind is SubjectKind.DEVICE else facts.objects.inventory.rules
        return f"there is no {subject.kind.value} {subject.name!r}{did_you_mean(subject.name, known)}"
    keys = facts.pods if subject.kind is SubjectKind.POD else set(facts.objects.inventory.claims)
    own = [key.partition("/")[2] for key in keys if key.startswith(f"{facts.namespace}/")]
    elsewhere = sorted(key.partition("/")[0] for key in keys if key.partition("/")[2] == subject.name)
    text = f"there is no {subject.kind.value} {subject.name!r} in namespace {facts.namespace}"
    if elsewhere:
        return f"{text}, but there is one in {', '.join(elsewhere[:_NAMED_MOST])} (-n)"
    return f"{text}{did_you_mean(subject.name, own)}"
