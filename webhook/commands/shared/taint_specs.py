"""Taints as kubectl writes them on a command line: `key=value:Effect`, and `key:Effect-` to remove one."""

from __future__ import annotations

from typing import Final, NamedTuple

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE
from webhook.commands.shared.addresses import DeviceAddress, as_device_address

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


def as_taint_spec(text: str) -> TaintSpec:
    """A taint to set. Raises ValueError."""
    named, colon, effect = text.rpartition(":")
    key, equals, value = named.partition("=")
    if not colon or not key or _MARKS & set(key + value) or (equals and not value):
        raise ValueError(f'{text!r} must be a taint such as "key=value:NoSchedule" or "key:NoExecute"')
    return TaintSpec(key, value, _effect(effect))


def as_taint_pattern(text: str) -> TaintPattern:
    """Taints to remove: `key`, `key:Effect`, each with or without a minus at its end. Raises ValueError."""
    named, _, effect = text.removesuffix(_MINUS).partition(":")
    key = named.partition("=")[0]
    if not key:
        raise ValueError(f'{text!r} must be a taint to remove, such as "key-" or "key:NoSchedule-"')
    return TaintPattern(key, _effect(effect) if effect else "")


def _effect(text: str) -> str:
    if text not in EFFECTS:
        meant = next((each for each in EFFECTS if each.lower() == text.lower()), "")
        hint = f"; did you mean {meant}?" if meant else f"; device taints have {', '.join(EFFECTS)}"
        raise ValueError(f"invalid taint effect: {text!r}{hint}")
    return text
