"""Counters that the devices of a pool share. Source: pkg/apis/resource/validation (validateCounterSet).

How many there may be in a slice of 1.34 and older, which had other limits, is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, required, too_many
from webhook.validation.formats import dns1123_label, each_invalid
from webhook.validation.nodes import Node, key_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.validation.releases import Release

COUNTERS_MAX: Final = 32
SETS_MAX: Final = 8


def counter_map_errors(holder: Node, name_field: str, release: Release) -> Iterator[FieldError]:
    """A set of counters, or what a device takes of one: its name and its map of counters."""
    declarative = release.declarative
    name = holder.text(name_field)
    if not name:
        yield required(holder.at(name_field), declarative=declarative)
    else:
        yield from each_invalid(holder.at(name_field), name, dns1123_label(name), declarative=declarative)
    counters, path = holder.get("counters") or {}, holder.at("counters")
    if not counters:
        yield required(path, declarative=declarative)
    crowded = len(counters) > COUNTERS_MAX and release.counters_halve_devices
    if crowded:
        yield too_many(path, len(counters), COUNTERS_MAX)
    if not crowded or declarative:
        for key in counters:
            yield from each_invalid(key_path(path, key, release), key, dns1123_label(key), declarative=declarative)
