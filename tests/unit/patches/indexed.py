"""An index of patches with a stand-in for CEL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.patches.patched import by_number
from webhook.patches.filters import SharedSelectors
from webhook.patches.index import PatchIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import DeviceClassSelectors, ResourceSlice
    from webhook.patches.filters import DeviceTest


class ByNumber(SharedSelectors):
    """`by_number` for each filter; counts the pools that are read."""

    def __init__(self) -> None:
        self.forgotten = 0

    def make(self) -> Any:
        return self

    def forget(self) -> None:
        self.forgotten += 1

    def __call__(self, expression: str) -> DeviceTest:
        return by_number(expression)


def drained(index: PatchIndex) -> int:
    """Lets the index do all of its work; returns in how many steps."""
    steps = 0
    while index.step():
        steps += 1
    return steps


def index_of(
    slices: Iterable[ResourceSlice] = (),
    *patches: ResourceSlicePatch,
    classes: dict[str, DeviceClassSelectors] | None = None,
) -> PatchIndex:
    """One that has nothing left to do."""
    index = PatchIndex(ByNumber())
    for name, value in (classes or {}).items():
        index.apply_class(name, value)
    for each in slices:
        index.apply_slice(None, each)
    for patch in patches:
        index.apply_patch(patch.meta.name, patch)
    drained(index)
    return index
