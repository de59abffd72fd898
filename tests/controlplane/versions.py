"""What each Kubernetes release serves of device taints, and what must be switched on for all of it.

Source: KEP-5055's graduation, pkg/features/kube_features.go of each release; semantics.md V-1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from webhook.api.servers import facts_of

DEFAULT = "1.37.2"
"""The release that tests run on unless ENVTEST_K8S_VERSION names another."""
RELEASE = os.environ.get("ENVTEST_K8S_VERSION") or DEFAULT
"""The one that they run on."""
FACTS = facts_of([RELEASE])
"""What servers and the in-tree controller of that release do."""

GROUP = "resource.k8s.io"

_SHARED = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_RULE = "DeviceTaintRule"

# minor release -> version of resource.k8s.io, the preferred one first -> kinds of ours that it has. As the servers
# themselves answer with every version switched on: api/discovery in the source of each release is what they answered.
# 1.38 is that of 1.38.0-beta.0, whose v1beta1 is gone (k8s.io/api/resource/v1beta1: removed in 1.38).
SERVED: Mapping[int, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        33: {"v1beta2": _SHARED, "v1beta1": _SHARED, "v1alpha3": (*_SHARED, _RULE)},
        34: {"v1": _SHARED, "v1beta2": _SHARED, "v1beta1": _SHARED, "v1alpha3": (_RULE,)},
        35: {"v1": _SHARED, "v1beta2": _SHARED, "v1beta1": _SHARED, "v1alpha3": (_RULE,)},
        36: {"v1": _SHARED, "v1beta2": (*_SHARED, _RULE), "v1beta1": _SHARED, "v1alpha3": (_RULE,)},
        37: {"v1": (*_SHARED, _RULE), "v1beta2": (*_SHARED, _RULE), "v1beta1": _SHARED, "v1alpha3": (_RULE,)},
        38: {"v1": (*_SHARED, _RULE), "v1beta2": (*_SHARED, _RULE), "v1alpha3": (_RULE,)},
    }
)

# minor release -> gates that are off by default there and that device taints need
_GATES: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        33: ("DynamicResourceAllocation", "DRADeviceTaints"),
        34: ("DRADeviceTaints",),
        35: ("DRADeviceTaints", "DRADeviceTaintRules"),
        36: ("DRADeviceTaintRules",),
        37: (),
        38: (),
    }
)


def minor(version: str) -> int:
    """37 for "1.37.0" and "v1.37.0"; a release newer than this file knows counts as the newest known."""
    number = int(version.removeprefix("v").split(".")[1])
    return min(max(number, min(SERVED)), max(SERVED))


def api_versions(version: str) -> tuple[str, ...]:
    """Every version of resource.k8s.io that the release can serve, the preferred one first."""
    return tuple(SERVED[minor(version)])


def rule_versions(version: str) -> tuple[str, ...]:
    """Those of them that have DeviceTaintRule."""
    return tuple(name for name, kinds in SERVED[minor(version)].items() if _RULE in kinds)


def feature_gates(version: str) -> dict[str, bool]:
    """The gates to set so that device taints and their rules work."""
    return dict.fromkeys(_GATES[minor(version)], True)


def runtime_config(version: str) -> dict[str, bool]:
    """--runtime-config that serves all of resource.k8s.io."""
    return {f"{GROUP}/{name}": True for name in api_versions(version)}
