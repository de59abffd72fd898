"""Which slices have to be written again so that `/mutate` carries out the patches of today, and what it will not do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from webhook.inventory.originals import ORIGINALS
from webhook.inventory.overriding import Refusal, arrived, changed_settings, overridden
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.slices import ResourceSlice
    from webhook.inventory.device_filter import CompilesSelectors
    from webhook.inventory.overriding import Faults
    from webhook.inventory.slice_patches import SlicePatches
    from webhook.inventory.steps import Check

FaultsOf = Callable[["ResourceSlice"], "Faults"]


class SliceWork(NamedTuple):
    """What the controller of patches does about slices."""

    touch: tuple[str, ...]
    """Slices that are not what `/mutate` would make of them, by name."""
    refused: Mapping[str, tuple[Refusal, ...]]
    """What is not carried out, by slice."""
    patched: Mapping[str, int]
    """Devices that each patch changes, by patch; all patches that set anything."""


def slice_work(
    slices: Iterable[ResourceSlice],
    patches: SlicePatches,
    compiles: CompilesSelectors,
    faults_of: FaultsOf,
    check: Check = unchecked,
) -> SliceWork:
    """The work on slices as they are stored, with their devices. `check` is called now and then, and may raise."""
    touch: list[str] = []
    refused: dict[str, tuple[Refusal, ...]] = {}
    patched = Counter(dict.fromkeys(patches.ranking, 0))
    for value in in_steps(slices, check):
        given = value.meta.annotations.get(ORIGINALS, "")
        if not patches.known or not (patches.patches or given):
            continue
        found = arrived(value, value, same_spec=True)
        overrides = patches.overrides(found, compiles, check)
        result = overridden(found, overrides, patches.ranking, faults_of(value))
        if result.annotation != given or next(changed_settings(value, result), None) is not None:
            touch.append(value.meta.name)
        if result.refused:
            refused[value.meta.name] = result.refused
        left_out = {(each.patch, each.device) for each in result.refused}
        for device, origins in overrides.items():
            winners = {each.patch for each in origins.values()}
            patched.update([each for each in winners if not left_out & {(each, device), (each, None)}])
    return SliceWork(tuple(sorted(touch)), dict(sorted(refused.items())), dict(patched))
