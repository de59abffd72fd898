"""What the status of a patch says about slices."""

from __future__ import annotations

from typing import Final

import pytest

from webhook.patches.overriding import Refusal
from webhook.patches.status import PatchInSlices

FULL: Final = (Refusal("p", "gpu-0", "too many"), Refusal("p", "gpu-1", "other"))
LARGE: Final = "where the drivers' own values would take more than 65536 bytes"
INVALID: Final = "which would be invalid"
ROWS: Final = {
    "fine": (PatchInSlices(3), ("True", "AttributesApplied", "the slices have what the patch sets")),
    "originals": (
        PatchInSlices(beyond=("d", "c", "b", "a")),
        (
            "False",
            "TooManyOriginals",
            f"not applied in 4 slices, {LARGE}: a, b, c and 1 more",
        ),
    ),
    "devices": (
        PatchInSlices(invalid={"s": FULL}),
        ("False", "DeviceInvalid", "not applied to 2 devices in 1 slice, which would be invalid: s (gpu-0: too many)"),
    ),
    "one device": (
        PatchInSlices(invalid={"s": FULL[1:]}),
        ("False", "DeviceInvalid", "not applied to 1 device in 1 slice, which would be invalid: s (gpu-1: other)"),
    ),
    "pending": (
        PatchInSlices(pending=("y", "x", "z")),
        ("False", "SlicesPending", "3 slices still to be written: x, y (403: no), z"),
    ),
    "both": (
        PatchInSlices(beyond=("a",), invalid={"s": FULL}),
        (
            "False",
            "TooManyOriginals",
            f"not applied in 1 slice, {LARGE}: a; not applied to 2 devices in 1 slice, {INVALID}: s (gpu-0: too many)",
        ),
    ),
    "refused and pending": (
        PatchInSlices(invalid={"s": FULL}, pending=("x",)),
        (
            "False",
            "DeviceInvalid",
            f"not applied to 2 devices in 1 slice, {INVALID}: s (gpu-0: too many); 1 slice still to be written: x",
        ),
    ),
}


@pytest.mark.parametrize(("found", "expected"), ROWS.values(), ids=list(ROWS))
def test_condition(found: PatchInSlices, expected: tuple[str, str, str]) -> None:
    condition = found.condition({"y": "403: no", "other": "x"})
    assert condition.type == "AttributesApplied"
    assert (condition.status, condition.reason, condition.message) == expected
