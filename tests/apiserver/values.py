"""Right and wrong values of every field that device taints have; each list holds its rule's edges."""

from __future__ import annotations

DROP = object()
"""In place of a value: leave the field out."""

_LONG_PREFIX = ".".join(["p" * 50] * 5)[:253]
GOOD_KEYS = [
    "example.com/a",
    "gpu.example.com/xid",
    "a",
    "A.b-c_d",
    "9",
    "x" * 63,
    f"{_LONG_PREFIX}/x",
    f"{'l' * 100}.example/x",  # labels of a prefix have no limit of their own
    "example.com/UPPER_case.ok",
]
BAD_KEYS = [
    *("", "/x", "x/", "a/b/c", "UPPER.com/x", "a b", "-a", "a-", "a\n", "a" * 64, "é", "é" * 32, "p" * 254 + "/x"),
    *(f"ex..com/{'b' * 64}", "example.com/a!", "\u212a", "a/" + "-" * 64, "."),
]
GOOD_VALUES = ["", "v", "A_b.c", "x" * 63, "1"]
BAD_VALUES = ["x" * 64, "-v", "v-", "a b", "v\n", "ä", "a/b", "é" * 32]
GOOD_EFFECTS = ["NoExecute", "NoSchedule", "None"]
BAD_EFFECTS = ["", "noexecute", "PreferNoSchedule", "NoExecute ", "Evict", DROP]
GOOD_TIMES = [
    DROP,
    None,
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456Z",
    "2026-06-01T12:00:00+02:00",
    "2099-12-31T23:59:59Z",
    "1990-01-01T00:00:00-11:30",
]
BAD_TIMES = ["", "yesterday", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", 5, "2026-01-01T24:00:00Z"]
GOOD_DRIVERS = [DROP, "gpu.example.com", "GPU.Example.com", "d", "\u212aernel.example.com", "x" * 63]
BAD_DRIVERS = ["", "a_b", "-a", "x" * 64, "a..b", "a b", "X" * 64, "a_" * 40, "\u0130.example.com", "ä", "d."]
GOOD_POOLS = [DROP, "pool", "a/b/c", "node-1.example.com", "x" * 253]
BAD_POOLS = ["", "/", "a//b", "/a", "a/", "Pool", "x" * 254, "a_b/c_d", "x/" * 130]
GOOD_DEVICES = [DROP, "gpu-0", "0", "x" * 63]
BAD_DEVICES = ["", "GPU", "a.b", "x" * 64, "-", "a_b", "a\n", "A" * 64]
GOOD_NAMES = ["obj", "a.b-c", "x" * 253, "9"]
BAD_NAMES = ["", DROP, "Upper", "a_b", "-x", "x-", "a..b", "x" * 254]

GOOD_CLASSES = ["gpu.example.com", "a", "x" * 253]
BAD_CLASSES = ["", "UPPER", "a_b", "x" * 254, "a b"]
GOOD_EXPRESSIONS = ['device.driver == "gpu.example.com"', "true", 'device.attributes["example.com"].x > 3 || false']
# Those that every release refuses; what is new in one is left out.
BAD_EXPRESSIONS = [
    *("", "  ", "device.driver ==", "((", 'device.driver == "x', "x" * 10241, "device.driver", "device.driver == 1"),
    *('device.vendor == "x"', 'gpu.driver == "x"', "device.driver.unknown()"),
]
