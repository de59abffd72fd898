"""What command lines name: objects as `TYPE/NAME`, devices as `DRIVER/POOL/DEVICE`, and taints as kubectl has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.rules import DeviceSelector
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE
from webhook.validation.formats import dns1123_label, dns1123_subdomain, label_key, label_value

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES: Final = frozenset({"node", "nodes", "no"})
RULES: Final = frozenset({"devicetaintrule", "devicetaintrules"})
_QUALIFIED: Final = re.compile(r"([a-z]+)(\.v\d\w*)?(\.|\.resource\.k8s\.io)?")


def type_in(word: str) -> str:
    """A type in lower case and without its group and version."""
    found = _QUALIFIED.fullmatch(word.lower())
    return word if found is None else found[1]


def name_in(word: str, types: frozenset[str]) -> str:
    """The name in `TYPE/NAME` of one of these types; empty if the word is anything else."""
    kind, _, name = word.partition("/")
    return name if type_in(kind) in types and "/" not in name else ""


_FORM: Final = "must be DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE, such as gpu.example.com/node-7/gpu-0"


class DeviceAddress(NamedTuple):
    """One device, all devices of a pool, or all of a driver; what is empty is not named."""

    driver: str
    pool: str = ""
    device: str = ""

    @property
    def selector(self) -> DeviceSelector:
        """The selector of a rule for just these devices."""
        return DeviceSelector(self.driver, self.pool or None, self.device or None)

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Whether a device is one of them."""
        return driver == self.driver and self.pool in ("", pool) and self.device in ("", device)

    def __str__(self) -> str:
        if not self.device:
            # The names of some pools contain slashes; one more at the end says that the last part is no device.
            return f"{self.driver}/{self.pool}" + ("/" if "/" in self.pool else "") if self.pool else self.driver
        return f"{self.driver}/{self.pool}/{self.device}"


def as_device_address(text: str) -> DeviceAddress:
    """An address. Of three parts and more the last is the device, unless a slash follows. Raises ValueError."""
    driver, *rest = text.split("/")
    device = rest.pop() if len(rest) > 1 else ""
    pool = "/".join(rest)
    named: Iterable[str] = (driver, *rest)
    if any(map(dns1123_subdomain, named)) or (device and dns1123_label(device)):
        raise ValueError(_FORM)
    return DeviceAddress(driver, pool, device)


EFFECTS: Final = (NO_SCHEDULE, NO_EXECUTE, NONE)
_MINUS: Final = "-"
_MARKS: Final = frozenset(":=")


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
        """Whether a taint is one of them."""
        return key == self.key and self.effect in ("", effect)

    def __str__(self) -> str:
        return f"{self.key}:{self.effect}" if self.effect else self.key


def is_taint(word: str) -> bool:
    """Whether a word is a taint: it contains `:` or `=`, or ends in `-`."""
    return bool(_MARKS & set(word)) or word.endswith(_MINUS)


def split_words(words: list[str]) -> tuple[list[DeviceAddress], list[str]]:
    """Devices, and taints as they were written. Raises ValueError."""
    taints = list(filter(is_taint, words))
    addresses = []
    for word in words:
        if word not in taints:
            try:
                addresses.append(as_device_address(word))
            except ValueError as error:
                raise ValueError(f"{word!r} {error}") from None
    return addresses, taints


def as_taint_specs(texts: Iterable[str]) -> list[TaintSpec]:
    """Taints to set, each key with an effect once. Raises ValueError."""
    found: dict[TaintPattern, TaintSpec] = {}
    for text in texts:
        taint = as_taint_spec(text)
        pattern = TaintPattern(taint.key, taint.effect)
        if pattern in found:
            raise ValueError(f"duplicated taints with the same key and effect: {text!r} and {found[pattern]}")
        found[pattern] = taint
    return list(found.values())


def as_taint_spec(text: str) -> TaintSpec:
    """A taint to set. Raises ValueError."""
    form = 'a taint such as "key=value:NoSchedule" or "key:NoExecute"'
    taint = _taint(text, form)
    if not taint.effect:
        raise ValueError(f"{text!r} must be {form}")
    return taint


def as_taint_pattern(text: str) -> TaintPattern:
    """Taints to remove: `key`, `key:Effect`, each with or without a minus at its end. Raises ValueError."""
    taint = _taint(text.removesuffix(_MINUS), 'a taint to remove, such as "key-" or "key:NoSchedule-"')
    return TaintPattern(taint.key, taint.effect)


def _taint(text: str, form: str) -> TaintSpec:
    """`key=value:Effect`, `key:Effect` or `key`, as parseTaint of kubectl reads them."""
    named, colon, effect = text.partition(":")
    key, _, value = named.partition("=") if colon else (named, "", "")
    wrong = [f"key: {each}" for each in label_key(key)] + [f"value: {each}" for each in label_value(value)]
    if wrong:
        raise ValueError("; ".join((f"{text!r} must be {form}", *wrong)))
    return TaintSpec(key, value, _effect(effect) if colon else "")


def _effect(text: str) -> str:
    if text not in EFFECTS:
        meant = next((each for each in EFFECTS if each.lower() == text.lower()), "")
        hint = f"; did you mean {meant}?" if meant else f"; device taints have {', '.join(EFFECTS)}"
        raise ValueError(f"invalid taint effect: {text!r}{hint}")
    return text
