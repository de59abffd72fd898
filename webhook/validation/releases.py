"""What differs between the releases of Kubernetes that serve device taints. `semantics.md` V-*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from webhook.api.servers import ServerFacts
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The limits and habits of one minor release."""

    minor: int
    taints_per_device: int = 16
    effects: frozenset[str] = frozenset({NONE, NO_SCHEDULE, NO_EXECUTE})
    ratchets: bool = True
    """Whether what an update leaves alone is not judged again (T-12 to T-14)."""
    declarative: bool = True
    """Whether effects and operators are also checked before conversion, without ratcheting by name (T-13, V-5)."""
    devices_with_taints: int = 64
    """How many devices a slice may have when one of them has a taint (S-2)."""
    counters_apart: bool = True
    """Whether counters have slices of their own, with limits of their own, and halve the devices that use them."""
    as_since_1_36: bool = True
    """Whether lists as attributes halve the devices, and keys and constraints are reported as a whole."""
    long_lists_end_the_look: bool = True
    """Whether the entries of a list that is too long are left unjudged (S-1)."""
    allocations_checked: bool = True
    """Whether the tolerations copied into an allocation are checked (L-9)."""
    empty_driver_twice: bool = False
    """Whether an empty driver name is reported as Invalid as well (R-3)."""
    rule_status: bool = True
    class_selectors: bool = False
    """Whether a rule's selector still has deviceClassName and CEL selectors (V-2)."""
    # The rest is new in 1.38: pkg/apis/resource/validation/validation.go of 1.38.0-beta.0, in the function named.
    devices_as_one: bool = False
    """Whether an update judges all devices of a slice, or none if they are as they were (validateResourceSliceSpec)."""
    one_term_per_device: bool = False
    """Whether the node selector of a device must have a single term (validateDeviceNodeSelection)."""
    one_slash: bool = False
    """Whether a qualified name may have one slash only (validateQualifiedName; k/k 141644)."""
    capacity_requests_checked: bool = False
    """Whether names and amounts of requested capacities are checked (validateCapacityRequirements)."""
    exact_fractions: bool = False
    """Whether policies count in thousandths (validateRequestPolicyRange; DRAFractionalCapacityRange is on)."""
    short_version_numbers: bool = False
    """Whether the numbers in a version may have 18 digits at most (numericIdentifier)."""


MAX_DEVICES: Final = 128
_OLD_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})

RELEASES: Final = {
    minor: Release(
        minor=minor,
        taints_per_device=4,
        effects=_OLD_EFFECTS,
        ratchets=False,
        declarative=False,
        devices_with_taints=MAX_DEVICES,
        counters_apart=False,
        as_since_1_36=False,
        long_lists_end_the_look=False,
        allocations_checked=False,
        empty_driver_twice=True,
        rule_status=False,
        class_selectors=True,
    )
    for minor in (33, 34)
} | {
    35: Release(minor=35, declarative=False, allocations_checked=False, as_since_1_36=False),
    36: Release(minor=36, declarative=False, allocations_checked=False),
    37: Release(minor=37),
    38: Release(
        minor=38,
        devices_as_one=True,
        one_term_per_device=True,
        one_slash=True,
        capacity_requests_checked=True,
        exact_fractions=True,
        short_version_numbers=True,
    ),
}
NEWEST: Final = RELEASES[37]
"""The newest release that is out: what a server is judged by whose version is not known."""


def release_of(servers: ServerFacts) -> Release:
    """Return the release whose field rules these servers apply: 1.38, or else the newest that is out."""
    return RELEASES[max(RELEASES)] if servers.judges_as_1_38 else NEWEST
