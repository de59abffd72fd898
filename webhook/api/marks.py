"""Every mark on objects that our programs read: who may write it, and what it may do at most if it is made up.

Marks are annotations, labels, condition types, owner references and field managers. None of them proves who wrote an
object. One that reads a further mark gives it a row here; a test compares this table with the code.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from webhook.api.meta import OWN_GROUP


class Mark(NamedTuple):
    """Marks by their names, on a kind of object: whose they are, and what one that is made up does."""

    names: tuple[str, ...]
    kind: str
    writer: str
    forged: str


def _own(*names: str) -> tuple[str, ...]:
    return tuple([f"{OWN_GROUP}/{name}" for name in names])


_AUTHORS: Final = "who may write the object"
_ITSELF: Final = "changes what its own object does, as admission judges it"
_SAME_CLAIM: Final = "nothing beyond the gang: the pod waits for others of its namespace, or goes with those that go"
MARKS: Final = (
    Mark(_own("data", "description", "owner", "ticket"), "rules", _AUTHORS, "is shown to people"),
    Mark(_own("evict", "evictions-per-second", "expires-at", "not-before", "scope"), "rules", _AUTHORS, _ITSELF),
    Mark(_own("confirm-impact"), "rules, patches", _AUTHORS, "must be of this object, and say no more than it hits"),
    Mark(_own("softened-from", "softened-keys"), "rules, patches", "/mutate", "makes the worker stricter"),
    Mark(_own("patch", "hardware-of"), "rules", "patch controller", "nothing: name, taint and selector decide"),
    Mark(("ownerReferences",), "rules", "patch controller", "nothing: name, taint and selector decide"),
    Mark(_own("reaction", "reasons"), "rules", "patch controller", "nothing: name, taint and selector decide"),
    Mark(_own("Eviction", "Released", "ExpiryContested"), "rules", "eviction worker", "is written again; /status only"),
    Mark(_own("EvictedPods", "CountedPods"), "rules", "eviction worker", "moves a count of its own rule; /status only"),
    Mark(("device-taint-eviction-controller",), "rules", "in-tree controller", "stops `replacement`; /status only"),
    Mark(_own("hold"), "pods, namespaces", _AUTHORS, "keeps the pods for `maxHold` at most"),
    Mark(_own("gang"), "pods", _AUTHORS, _SAME_CLAIM),
    Mark(("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"), "pods", _AUTHORS, _SAME_CLAIM),
    Mark(
        tuple([f"leaderworkerset.sigs.k8s.io/{name}" for name in ("name", "group-key", "group-index")]),
        *("pods", _AUTHORS, _SAME_CLAIM),
    ),
    Mark(("kueue.x-k8s.io/pod-group-name",), "pods", _AUTHORS, _SAME_CLAIM),
    Mark(("kubernetes.io/config.mirror",), "pods", "kubelets", "keeps its own pod, which no API call can end"),
    Mark(_own("requested-by"), "claims, templates", "/mutate", "is refused or dropped: API servers know the user"),
    Mark(_own("defaulted-tolerations"), "claims, templates", "/mutate", "is dropped: the policy decides"),
    Mark(
        ("resource.kubernetes.io/extended-resource-claim", "resource.kubernetes.io/pod-claim-name"),
        *("claims", "scheduler, claim controller", "nothing: the account that sends the claim decides"),
    ),
    Mark(_own("originals"), "slices", "/mutate", "changes attributes of devices in its own slice"),
    Mark(_own("mode", "in-tree", "version"), "the Lease of `evict`", "eviction worker", "is shown; softening warns"),
    Mark(_own("policy-hash"), "policies", "export-vap", "tells people which policy it was"),
    Mark(("kubernetes.io/metadata.name",), "namespaces", "API server", "cannot be forged"),
)
