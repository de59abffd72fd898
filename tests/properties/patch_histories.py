"""Random histories of slices, device classes and patches, and what was given to one who follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from hypothesis import strategies as st

from tests.properties.test_patches import CLASSES, EXPRESSIONS, patches, slices
from tests.unit.patches.patched import class_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import SearchStrategy

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import DeviceClassSelectors, ResourceSlice

Changes = list[tuple[str, tuple[Any, ...]]]
"""Methods of `Given`, and their arguments."""

NAMES: Final = "vwxyz"
"""Of patches."""


class Follower(Protocol):
    """Follows slices, classes and patches."""

    def apply_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None: ...

    def apply_class(self, name: str, new: DeviceClassSelectors | None) -> None: ...

    def apply_patch(self, name: str, new: ResourceSlicePatch | None) -> None: ...


class Given:
    """What a follower was given, for the pure functions."""

    def __init__(self, follower: Follower, first: Iterable[ResourceSlice] = ()) -> None:
        """It begins with these slices."""
        self._follower = follower
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClassSelectors] = {}
        self.patches: dict[str, ResourceSlicePatch] = {}
        for each in first:
            self.put_slice(each)

    def put_classes(self) -> None:
        """All that patches may name."""
        for each in CLASSES.values():
            self.put_class(each.name, each.selectors[0].expression if each.selectors else None)

    def change(self, changes: Changes) -> None:
        for change, arguments in changes:
            getattr(self, change)(*arguments)

    def put_slice(self, value: ResourceSlice) -> None:
        self._follower.apply_slice(self.slices.get(value.meta.name), value)
        self.slices[value.meta.name] = value

    def drop_slice(self, at: int) -> None:
        if self.slices:
            name = sorted(self.slices)[at % len(self.slices)]
            self._follower.apply_slice(self.slices.pop(name), None)

    def put_class(self, name: str, expression: str | None) -> None:
        self.classes.pop(name, None)
        if expression is not None:
            self.classes |= class_of(name, expression)
        self._follower.apply_class(name, self.classes.get(name))

    def put_patch(self, patch: ResourceSlicePatch) -> None:
        self.patches[patch.meta.name] = patch
        self._follower.apply_patch(patch.meta.name, patch)

    def drop_patch(self, name: str) -> None:
        self.patches.pop(name, None)
        self._follower.apply_patch(name, None)


histories: SearchStrategy[list[Changes]] = st.lists(
    st.one_of(
        slices().map(lambda found: [("put_slice", (each,)) for each in found]),
        st.integers(0, 9).map(lambda at: [("drop_slice", (at,))]),
        st.tuples(st.sampled_from(("any", "low", "high")), st.none() | st.sampled_from(EXPRESSIONS)).map(
            lambda found: [("put_class", found)]
        ),
        st.sampled_from(NAMES).flatmap(patches).map(lambda found: [("put_patch", (found,))]),
        st.sampled_from(NAMES).map(lambda name: [("drop_patch", (name,))]),
    ),
    max_size=12,
)
