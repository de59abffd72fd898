"""The rules that are tried, as data. `on` is driver/pool/device, with `*` where the selector says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.apiserver.impact.fleet import HEALTH, KINDS, MAINT, OTHER, REBUILT, STALE, Bench

Json = dict[str, Any]

EVERYTHING: Final = "*/*/*"


@dataclass(frozen=True)
class Row:
    """A rule with effect NoExecute.

    `added`: timeAdded in seconds from now; None leaves it to the API server. A pool is the number of a node, or a
    name; a device is a kind and a number.
    """

    name: str
    on: str
    taint: str
    added: int | None = None

    def __str__(self) -> str:
        return self.name

    def selector(self, bench: Bench) -> Json:
        driver, pool, device = self.on.split("/")
        found: Json = {}
        if driver != "*":
            assert driver in KINDS
            found["driver"] = bench.driver(driver)
        if pool != "*":
            found["pool"] = bench.pool(int(pool) if pool.isdigit() else pool)
        if device != "*":
            kind, _, number = device.partition("-")
            found["device"] = bench.device(kind, int(number))
        return found

    @property
    def key(self) -> str:
        return self.taint.partition("=")[0]

    @property
    def value(self) -> str:
        return self.taint.partition("=")[2]


BENCH_ROWS: Final = (
    # a driver
    Row("gpus, a key that many tolerate", "gpu/*/*", MAINT),
    Row("nics, a key that many tolerate", "nic/*/*", MAINT),
    Row("gpus, a key that few tolerate", "gpu/*/*", HEALTH),
    Row("gpus, a key that nobody names", "gpu/*/*", OTHER),
    Row("gpus, a value that some tolerate", "gpu/*/*", f"{MAINT}=fan"),
    Row("nics, a value that nobody tolerates there", "nic/*/*", f"{MAINT}=fan"),
    Row("gpus, a value of a key that few tolerate", "gpu/*/*", f"{HEALTH}=fan"),
    Row("nics, a key that nobody names", "nic/*/*", OTHER),
    # a pool, of both drivers or of one
    *(Row(f"node {node}, a key that many tolerate", f"*/{node}/*", MAINT) for node in range(8)),
    Row("node 0, a key that few tolerate", "*/0/*", HEALTH),
    Row("node 1, a value that some tolerate", "*/1/*", f"{MAINT}=fan"),
    Row("node 4, a key that nobody names", "*/4/*", OTHER),
    Row("gpus of node 0", "gpu/0/*", MAINT),
    Row("gpus of node 3", "gpu/3/*", MAINT),
    Row("gpus of node 5, a value that some tolerate", "gpu/5/*", f"{MAINT}=fan"),
    Row("nics of node 4", "nic/4/*", MAINT),
    Row("nics of a pool whose last generation is still there", f"nic/{REBUILT}/*", MAINT),
    Row("a pool that nobody publishes, though a claim holds a device of it", f"*/{STALE}/*", MAINT),
    # devices
    Row("the first gpu of every node", "*/*/gpu-0", MAINT),
    Row("the second gpu of every node", "*/*/gpu-1", MAINT),
    Row("the third gpu of every node, a value that some tolerate", "*/*/gpu-2", f"{MAINT}=fan"),
    Row("the fourth gpu of every node, by driver too", "gpu/*/gpu-3", MAINT),
    Row("the first nic of every node", "*/*/nic-0", MAINT),
    Row("one gpu that three pods share", "gpu/0/gpu-3", MAINT),
    Row("one gpu that two pods share, without its driver", "*/3/gpu-3", MAINT),
    Row("one gpu that nobody has", "gpu/0/gpu-77", MAINT),
    # a time of its own
    Row("gpus, since almost an hour", "gpu/*/*", MAINT, -3596),
    Row("gpus, since two hours", "gpu/*/*", MAINT, -7200),
    Row("gpus, three seconds ahead", "gpu/*/*", MAINT, 3),
    Row("gpus, an hour ahead", "gpu/*/*", MAINT, 3600),
    # Graces of three seconds and more are not over by this, even if the request takes a while.
    Row("gpus, a value, a second ago", "gpu/*/*", f"{MAINT}=fan", -1),
    Row("gpus, a key that few tolerate, a second ago", "gpu/*/*", HEALTH, -1),
    Row("nics, since almost an hour", "nic/*/*", MAINT, -3596),
    Row("nics, four seconds ahead", "nic/*/*", MAINT, 4),
    Row("node 3, since almost an hour", "*/3/*", MAINT, -3596),
    Row("node 1, four seconds ahead", "*/1/*", MAINT, 4),
    Row("the second gpu of every node, a minute ago", "*/*/gpu-1", MAINT, -60),
)
"""Each is tried on one bench, four at a time."""

FLEET_ROWS: Final = (
    Row("everything, a key that many tolerate", EVERYTHING, MAINT),
    Row("everything, a value that some tolerate", EVERYTHING, f"{MAINT}=fan", -3597),
    Row("everything, a key that nobody names, two seconds ahead", EVERYTHING, OTHER, 2),
)
"""With an empty selector: each is tried alone, on all pods."""

ROWS: Final = BENCH_ROWS + FLEET_ROWS
