"""What differs between servers of Kubernetes. A patch release may change it, so each fact has a version, not a release.

Nothing else in the product compares versions of servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

_VERSION: Final = re.compile(
    r"v?1\.(\d{1,4})\+?(?:\.(\d{1,6}))?(?:-(alpha|beta|rc)\.?(\d{0,6})[.\d]*)?(?:[-+].*)?", re.ASCII | re.DOTALL
)
_STAGES: Final = ("alpha", "beta", "rc", "")
_LAST_PATCH: Final = 1_000_000


class ServerVersion(NamedTuple):
    """A version, ordered by release. `stage`: 0 to 3 for alpha, beta, rc and none; `build`: the number behind it."""

    minor: int
    patch: int
    stage: int = len(_STAGES) - 1
    build: int = 0


class ServerFacts(msgspec.Struct, frozen=True):
    """What API servers and controllers do. None is not known, and counts as False: more pods and devices are hit."""

    extended_evicted: bool | None = None
    """Whether the in-tree controller evicts pods whose device came through an extended resource; else it leaves them
    alone. They count as evicted either way."""
    missing_selects_nothing: bool | None = None
    """Whether a missing `deviceSelector` selects nothing; else it closes every device, and evicts from none."""
    empty_effect_protects: bool | None = None
    """Whether a toleration without effect protects from the in-tree controller; else it has to name NoExecute."""
    warns_of_empty: bool | None = None
    """Whether the server itself warns of an empty `deviceSelector`."""
    taints_by_default: bool | None = None
    """Whether taints in slices act without a feature gate."""
    rules_by_default: bool | None = None
    """Whether DeviceTaintRules are served, and act, without a feature gate."""
    judges_as_1_38: bool | None = None
    """Whether fields are judged as in 1.38 (`validation.releases`), and not as before."""


UNKNOWN: Final = ServerFacts()

_HOLDS_FROM: Final = {
    "taints_by_default": ServerVersion(36, 0),  # pkg/features/kube_features.go, DRADeviceTaints
    "rules_by_default": ServerVersion(37, 0),  # the same, DRADeviceTaintRules
    "extended_evicted": ServerVersion(37, 2),  # kubernetes/kubernetes 142289, 142492
    "missing_selects_nothing": ServerVersion(37, 1),  # 141648, 141998
    "empty_effect_protects": ServerVersion(38, 0, _STAGES.index("beta")),  # 143376, in 1.38.0-beta.0
    "warns_of_empty": ServerVersion(38, 0, _STAGES.index("beta")),  # 141831
    "judges_as_1_38": ServerVersion(38, 0, _STAGES.index("beta")),
}


def parse_version(text: str) -> tuple[ServerVersion, ServerVersion] | None:
    """The first and the last version that a text may stand for: `1.37` is any patch release; None if it is no version.

    What a vendor adds (`v1.37.2-gke.12`, `37+` as minor) is passed over; a pre-release comes before its release.
    """
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        return None
    minor, patch, stage, build = found.groups(default="")
    if not patch:
        return ServerVersion(int(minor), 0), ServerVersion(int(minor), _LAST_PATCH)
    version = ServerVersion(int(minor), int(patch), _STAGES.index(stage), int(build or 0))
    return version, version


def facts_of(versions: Iterable[str]) -> ServerFacts:
    """The facts of a control plane with servers of these versions; UNKNOWN without any, or if one is not understood."""
    spans = [parse_version(text) for text in versions]
    if not spans or None in spans:
        return UNKNOWN
    known = [span for span in spans if span is not None]
    facts: dict[str, bool | None] = {}
    for name, since in _HOLDS_FROM.items():
        always = all(since <= first for first, _ in known)
        never = all(last < since for _, last in known)
        facts[name] = always if always or never else None
    return ServerFacts(**facts)
