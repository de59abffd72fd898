"""What CEL selectors of devices cost in this process: to compile, and for each device with and without short cuts."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.tables import table
from webhook.expressions.selectors.selector import SelectedDevice, Selector, compile_selector

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVER: Final = "gpu.nvidia.com"
SELECTORS: Final = (
    f'device.driver == "{DRIVER}"',
    f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"',
    f'device.attributes["{DRIVER}"].productName.lowerAscii().matches("^.*a100.*$")',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.attributes["{DRIVER}"].driverVersion.compareTo(semver("550.0.0")) >= 0',
    f'device.attributes["{DRIVER}"].exists(k, k == "index")',
)
SHORT_CUTS: Final = SELECTORS[:2]
FASTER_THAN_INTERPRETED: Final = 5
"""How many times faster than the interpreter a short cut has to be."""
_ROUNDS: Final = 9
_DEVICES: Final = 500


def devices() -> list[SelectedDevice]:
    """Devices as a driver publishes them, each read for the first time."""
    attributes: dict[str, dict[str, object]] = {
        "type": {"string": "gpu"},
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "driverVersion": {"version": "550.54.15"},
        "index": {"int": 1},
        "uuid": {"string": "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"},
        "brand": {"string": "Nvidia"},
    }
    capacity = {"memory": {"value": "40Gi"}, "multiprocessors": {"value": "108"}}
    return [SelectedDevice(DRIVER, attributes, capacity) for _ in range(_DEVICES)]


def main() -> int:
    """Print the table; 1 if a short cut is no faster than it has to be."""
    rows = []
    slow = False
    compile_selector('device.driver.matches("x")')  # RE2 is imported on first use
    for source in SELECTORS:
        selector = compile_selector(source)
        assert isinstance(selector, Selector)
        compiled = statistics.median([_compile_seconds(source + " " * blanks) for blanks in range(1, _ROUNDS)])
        known = devices()
        for device in known:
            device.variables  # noqa: B018 -- made once for all selectors
        matched = _seconds(lambda: [selector.matches(device) for device in known]) / _DEVICES  # noqa: B023
        figures = [f"{compiled * 1e3:.1f}", f"{matched * 1e6:.1f}", "", ""]
        if source in SHORT_CUTS:
            interpreted = _seconds(lambda: [selector.interpreted(device) for device in known]) / _DEVICES  # noqa: B023
            ratio = interpreted / matched
            slow = slow or ratio < FASTER_THAN_INTERPRETED
            figures[2:] = [f"{interpreted * 1e6:.1f}", f"{ratio:.0f}"]
        rows.append([f"`{source}`", *figures])
    heads = ["selector", "compiled once, ms", "each device, µs", "without a short cut, µs", "ratio"]
    print(table(heads, rows, right=range(1, 5)))
    unread = devices()
    print(f"\nAttributes of a device are read once, in {_once(unread) * 1e6:.0f} µs.")
    return int(slow)


def _compile_seconds(source: str) -> float:
    """Of a source that is new, so that nothing is remembered."""
    started = time.perf_counter()
    compile_selector(source)
    return time.perf_counter() - started


def _once(unread: list[SelectedDevice]) -> float:
    started = time.perf_counter()
    for device in unread:
        device.variables  # noqa: B018 -- this is what is measured
    return (time.perf_counter() - started) / len(unread)


def _seconds(work: Callable[[], object]) -> float:
    found = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
