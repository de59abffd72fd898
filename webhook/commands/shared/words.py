"""What people write on command lines: objects as `TYPE/NAME`, devices, taints as kubectl has them, and their rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from webhook.api.decode import Reader
from webhook.api.meta import GROUP, parse_time
from webhook.api.rules import (
    ACTING_ANNOTATIONS,
    DESCRIPTION,
    EVICT,
    EXPIRES_AT,
    REACTION,
    SOFTENED_FROM,
    DeviceSelector,
    DeviceTaintRule,
    decode_rule,
)
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE
from webhook.commands.shared.main import WrongUsage
from webhook.validation.formats import dns1123_label, dns1123_subdomain, is_driver_name, label_key, label_value

NODES: Final = frozenset({"node", "nodes", "no"})
RULES: Final = frozenset({"rule", "rules", "devicetaintrule", "devicetaintrules"})
DEVICES: Final = frozenset({"device", "devices"})
_QUALIFIED: Final = re.compile(r"([a-z]+)(\.v\d\w*)?(\.|\.resource\.k8s\.io)?")
_FORM: Final = "must be DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE, such as gpu.example.com/node-7/gpu-0"
_EFFECTS: Final = (NO_SCHEDULE, NO_EXECUTE, NONE)


def type_in(word: str) -> str:
    """Return a type in lower case and without its group and version."""
    found = _QUALIFIED.fullmatch(word.lower())
    return word if found is None else found[1]


def name_in(word: str, types: frozenset[str]) -> str:
    """Return the name in `TYPE/NAME` of one of these types; empty if the word is anything else."""
    kind, _, name = word.partition("/")
    return name if type_in(kind) in types and "/" not in name else ""


class DeviceAddress(NamedTuple):
    """One device, all devices of a pool, or all of a driver; what is empty is not named."""

    driver: str
    pool: str = ""
    device: str = ""

    @property
    def selector(self) -> DeviceSelector:
        """Return the selector of a rule for just these devices."""
        return DeviceSelector(self.driver, self.pool or None, self.device or None)

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Return whether a device is one of them."""
        return driver == self.driver and self.pool in ("", pool) and self.device in ("", device)

    def __str__(self) -> str:
        if not self.device:
            # The names of some pools contain slashes; one more at the end says that the last part is no device.
            return f"{self.driver}/{self.pool}" + ("/" if "/" in self.pool else "") if self.pool else self.driver
        return f"{self.driver}/{self.pool}/{self.device}"


def as_device_address(text: str) -> DeviceAddress:
    """Return an address. Of three parts and more the last is the device, unless a slash follows. Raises WrongUsage."""
    kind, _, name = text.partition("/")
    driver, *rest = (name if name and type_in(kind) in DEVICES else text).split("/")
    device = rest.pop() if len(rest) > 1 else ""
    word = "." not in driver and driver != driver.lower()  # such as NoSchedule
    if word or not is_driver_name(driver) or any(map(dns1123_subdomain, rest)) or (device and dns1123_label(device)):
        raise WrongUsage(_FORM)
    return DeviceAddress(driver, "/".join(rest), device)


class TaintSpec(NamedTuple):
    """A taint that is to be set. `value` may be empty."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class TaintPattern(NamedTuple):
    """Taints that are to be removed: those with the key and, unless it is empty, the effect."""

    key: str
    effect: str = ""

    def matches(self, key: str, effect: str) -> bool:
        """Return whether a taint is one of them."""
        return key == self.key and self.effect in ("", effect)

    def __str__(self) -> str:
        return f"{self.key}:{self.effect}" if self.effect else self.key


def is_taint(word: str) -> bool:
    """Return whether a word is a taint: it contains `:` or `=`, or ends in `-`."""
    return ":" in word or "=" in word or word.endswith("-")


def split_words(words: list[str]) -> tuple[list[DeviceAddress], list[str]]:
    """Return devices, and taints as they were written. Raises WrongUsage."""
    addresses = []
    for word in words:
        if not is_taint(word):
            try:
                addresses.append(as_device_address(word))
            except WrongUsage as error:
                raise WrongUsage(f"{word!r} {error}") from None
    return addresses, list(filter(is_taint, words))


def as_taint_specs(texts: Iterable[str]) -> list[TaintSpec]:
    """Return the taints to set, each key with an effect once. Raises WrongUsage."""
    found: dict[tuple[str, str], TaintSpec] = {}
    for text in texts:
        taint = as_taint_spec(text)
        known = found.setdefault((taint.key, taint.effect), taint)
        if known is not taint:
            raise WrongUsage(f"duplicated taints with the same key and effect: {text!r} and {known}")
    return list(found.values())


def as_taint_spec(text: str) -> TaintSpec:
    """Return a taint to set. Raises WrongUsage."""
    form = 'a taint such as "key=value:NoSchedule" or "key:NoExecute"'
    taint = _taint(text, form)
    if not taint.effect:
        raise WrongUsage(f"{text!r} must be {form}")
    return taint


def as_taint_pattern(text: str) -> TaintPattern:
    """Return taints to remove: `key`, `key:Effect`, each with or without a minus at its end. Raises WrongUsage."""
    taint = _taint(text.removesuffix("-"), 'a taint to remove, such as "key-" or "key:NoSchedule-"')
    return TaintPattern(taint.key, taint.effect)


def _taint(text: str, form: str) -> TaintSpec:
    """Return a taint of `key=value:Effect`, `key:Effect` or `key`, as parseTaint of kubectl reads them."""
    named, colon, effect = text.partition(":")
    key, _, value = named.partition("=") if colon else (named, "", "")
    wrong = [f"key: {each}" for each in label_key(key)] + [f"value: {each}" for each in label_value(value)]
    if wrong:
        raise WrongUsage("; ".join((f"{text!r} must be {form}", *wrong)))
    if colon and effect not in _EFFECTS:
        meant = next((each for each in _EFFECTS if each.lower() == effect.lower()), "")
        hint = f"did you mean {meant}?" if meant else f"device taints have {', '.join(_EFFECTS)}"
        raise WrongUsage(f"invalid taint effect: {effect!r}; {hint}")
    return TaintSpec(key, value, effect)


# --- rules ----------------------------------------------------------------------------------------


_KIND: Final = "DeviceTaintRule"
NAME: Final = f"{_KIND.lower()}.{GROUP}"
"""Before the slash in what `-o name` prints."""
MANAGER: Final = "kubectl-dtaint"
"""The field manager of what the verbs write."""
_NAME_MOST: Final = 200
"""Characters of the readable part of a name."""


class WantedRule(NamedTuple):
    """A taint, and the devices that are to have it."""

    address: DeviceAddress
    taint: TaintSpec

    @property
    def name(self) -> str:
        """Return the name of its rule: the same for the same devices, key and effect, and readable."""
        (driver, pool, device), (key, _, effect) = self.address, self.taint
        digest = hashlib.sha256(f"{driver}\n{pool}\n{device}\n{key}\n{effect}".encode()).hexdigest()[:8]
        words = filter(None, (pool or driver, device, key.rpartition("/")[2], effect))
        text = "-".join(re.sub(r"[^a-z0-9.-]+", "-", word.lower()).strip("-.") for word in words)
        # A dot must not stand beside a dash in a subdomain.
        return f"{re.sub(r'-*[.]-*', '.', text)[:_NAME_MOST].strip('-.')}-{digest}"

    def manifest(self, version: str, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Return the rule as it is sent, in a version of the API."""
        selector = {name: text for name, text in self.address._asdict().items() if text}
        taint = {name: text for name, text in self.taint._asdict().items() if text}
        return {
            "apiVersion": f"{GROUP}/{version}",
            "kind": _KIND,
            "metadata": {"name": self.name, **({"annotations": dict(annotations)} if annotations else {})},
            "spec": {"deviceSelector": selector, "taint": taint},
        }


class StoredTaintRule(NamedTuple):
    """A rule as the server has it: the whole object, and what the code works with."""

    raw: Mapping[str, Any]
    rule: DeviceTaintRule

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> StoredTaintRule:
        """Return the rule in an object of any served version."""
        return cls(raw, decode_rule(Reader.of(raw, [])))

    def is_for(self, address: DeviceAddress) -> bool:
        """Return whether it selects just these devices, and by their names."""
        return self.rule.selector == address.selector

    def is_for_rule(self, wanted: WantedRule) -> bool:
        """Return whether it sets this taint, with whatever value, on just these devices, or was written to do so.

        The latter have ended since, or were softened. What a person made of such a rule is another taint.
        """
        rule, (key, _, effect) = self.rule, wanted.taint
        if not self.is_for(wanted.address) or rule.taint.key != key:
            return False
        changed = self.has_ended(wanted) or (rule.softened and effect == NO_EXECUTE)
        return rule.taint.effect == effect or (changed and rule.meta.name == wanted.name)

    def has_ended(self, wanted: WantedRule) -> bool:
        """Return whether it is there for this taint, and has expired. Without that, effect None is a person's stop."""
        expires = parse_time(self.rule.meta.annotations.get(EXPIRES_AT, ""))
        if expires is None or self.rule.taint.effect != NONE:
            return False
        return wanted.taint.effect != NONE and expires <= datetime.now(UTC)  # noqa: TID251 -- the shell asks

    @property
    def maker(self) -> str:
        """Return what wrote the rule, would do so again, and is to be changed instead; empty for a rule of a person."""
        origin, name = self.rule.origin, self.rule.meta.name
        if origin.patch:
            return f"rule {name} belongs to ResourceSlicePatch {origin.name}: change or delete that"
        if origin.rule:
            return f"rule {name} belongs to rule {origin.name} (devicetaint.io/scope: hardware): untaint that one"
        if origin.name:
            return f"rule {name} is controlled by {origin.name} ({origin.uid}): change that"
        labels = self.raw.get("metadata", {}).get("labels") or {}
        if labels.get(REACTION) == "true":
            return f"rule {name} is a reaction of the policy to another taint of the device: it goes with that taint"
        return ""

    def overwritten(self, wanted: WantedRule, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Return the object with the taint and these annotations, to be written if it has not changed meanwhile.

        The server sets timeAdded for another taint, or if eviction is asked for: what pods tolerate starts over. What
        softening or a taint that has ended asked for goes; what others have set stays.
        """
        metadata, spec = self.raw["metadata"], self.raw["spec"]
        set_anew = wanted.taint.effect != self.rule.taint.effect
        starts = EVICT in annotations and self.rule.meta.annotations.get(EVICT) != "true"
        starts |= set_anew or wanted.taint.value != self.rule.taint.value
        left_out = {"value", "timeAdded"} if starts else {"value"}
        taint = {name: part for name, part in spec["taint"].items() if name not in left_out}
        taint["effect"] = wanted.taint.effect
        if wanted.taint.value:
            taint["value"] = wanted.taint.value
        asked = (*ACTING_ANNOTATIONS, DESCRIPTION) if self.has_ended(wanted) else (EVICT, SOFTENED_FROM)
        gone = asked if set_anew else ()
        known = (metadata.get("annotations") or {}).items()
        annotations = {**{name: text for name, text in known if name not in gone}, **annotations}
        return {**self.raw, "metadata": {**metadata, "annotations": annotations}, "spec": {**spec, "taint": taint}}
