"""Names that a selector has, and the devices that have them."""

from __future__ import annotations

import itertools

import pytest

from webhook.api.claims import AllocationResult
from webhook.inventory.targets import DeviceNames

RESULT = AllocationResult("request", "driver", "pool", "device", ())


@pytest.mark.parametrize(
    "names", list(itertools.product((None, "driver", "x"), (None, "pool", "x"), (None, "device", "x"))), ids=str
)
def test_device_is_included_if_every_name_that_is_given_is_its_own(names: tuple[str | None, ...]) -> None:
    assert DeviceNames(*names).includes(RESULT) is ("x" not in names)
