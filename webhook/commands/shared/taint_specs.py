"""Taints as kubectl writes them on a command line: `key=value:Effect`, and `key:Effect-` to remove one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE
from webhook.commands.shared.addresses import DeviceAddress, as_device_address
from webhook.validation.formats import label_key, label_value

if TYPE_CHECKING:
    from collections.abc import Iterable

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
