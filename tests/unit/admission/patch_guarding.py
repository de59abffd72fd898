"""Patches sent to the guard of a small cluster whose devices have attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from tests.builders import DRIVER, NOW, make_admission_request, make_context, make_patch, make_taint
from tests.unit.inventory.values import claim, inventory_of, on
from tests.unit.patches.patched import CREATED, slice_of
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import apply_patch
from webhook.api.decode import Reader
from webhook.api.meta import format_time
from webhook.api.patches import SOFTENED_KEYS, decode_patch
from webhook.api.rules import CONFIRM_IMPACT, CELSelector, RuleOrigin
from webhook.api.slices import DeviceClassSelectors
from webhook.inventory.state import Inventory, Sight
from webhook.patches.filter_memo import FilterMemo
from webhook.patches.patch_reach import KnownPatches, patch_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from webhook.admission.decision import Decision
    from webhook.api.patches import ResourceSlicePatch

CREATED_TEXT: Final = format_time(CREATED)
FIRST: Final = f'device.attributes["{DRIVER}"].place == 0'
"""CEL for the first device of each node, the one that a pod uses."""
SECOND: Final = f'device.attributes["{DRIVER}"].place == 1'


class SlowMemo(FilterMemo):
    """Never has an answer in time."""

    def selected(self, *_: object) -> None:
        return None


def racks(nodes: int = 4, namespace_of: Callable[[int], str] = lambda _: "ml", pods: int = 1) -> Inventory:
    """Nodes with two devices each, whose attribute `place` is their number; pods use the first one."""
    return inventory_of(
        *[
            slice_of(
                *[{"name": f"gpu-{place}", "attributes": {"place": {"int": place}}} for place in range(2)],
                pool=f"node-{number}",
                nodeName=f"node-{number}",
            )
            for number in range(nodes)
        ],
        *[
            claim(
                f"claim-{number}",
                on(pool=f"node-{number}"),
                users=[f"u-{number}" if pods == 1 else f"u-{number}-{each}" for each in range(pods)],
                namespace=namespace_of(number),
            )
            for number in range(nodes)
        ],
    )


def cel(*expressions: str, **names: str) -> dict[str, Any]:
    """A filter with selectors, and names if any."""
    return {**names, "selectors": [{"cel": {"expression": each}} for each in expressions]}


def evicting(**fields: Any) -> Any:
    """A NoExecute taint of the present time."""
    return make_taint(**{"effect": "NoExecute", "time_added": format_time(NOW), **fields})


def patching(
    filter_: Any = "default",
    *taints: Any,
    name: str = "firmware",
    uid: str | None = None,
    text: str | None = None,
    softened: str | None = None,
    created: str | None = None,
    **devices: Any,
) -> Any:
    """A patch with one NoExecute taint for all devices of the driver, unless something else is given."""
    annotations = {CONFIRM_IMPACT: text, SOFTENED_KEYS: softened}
    meta = {"name": name, "annotations": {key: said for key, said in annotations.items() if said is not None}}
    meta |= {key: text for key, text in (("uid", uid), ("creationTimestamp", created)) if text is not None}
    return make_patch(filter_=filter_, meta=meta, taints=list(taints) or [evicting()], **devices)


def known(
    stored: Iterable[Any] = (),
    classes: dict[str, tuple[str, ...]] | None = None,
    unknown: str = "",
    memo: FilterMemo | None = None,
) -> KnownPatches:
    """What the webhook knows of patches and classes: manifests, and CEL by the name of the class."""
    patches = {each.meta.name: each for each in map(_stored, stored)}
    found = {
        name: DeviceClassSelectors(name, tuple([CELSelector(each) for each in given]))
        for name, given in (classes or {}).items()
    }
    return KnownPatches(patches, found, unknown, memo)


def standing(cluster: Inventory, patches: KnownPatches) -> Inventory:
    """The cluster long after the patch controller has written its rules."""
    if not patches.patches:
        return cluster
    every = (cluster.slices, cluster.claims, cluster.pods, cluster.pod_groups, cluster.rules)
    found = inventory_of(*[value for values in every for value in values.values()])
    for patch in patches.patches.values():
        uid = patch.meta.uid
        origin = RuleOrigin(patch.meta.name, uid, patch=True, of_patch=uid)
        for rule in () if patch.deleting else patch_reach(patch, patches, cluster.pools).rules:
            found.apply(
                None, structs.replace(rule, origin=origin, taint=structs.replace(rule.taint, time_added=CREATED))
            )
    return found


def ask_patch(patch: Any, old: Any = None, *, cluster: Inventory | Sight | None = None, **options: Any) -> Decision:
    """The verdict of /validate; `old` is stored. By default the cluster is four nodes."""
    request, context = _asked(patch, old, cluster, options)
    return validate(request, context)


def send_patch(patch: Any, old: Any = None, **options: Any) -> tuple[Decision, Decision, Any]:
    """What both webhooks say one after the other, and the patch as it is stored if it is allowed."""
    cluster = options.pop("cluster", None)
    mutated = mutate(*_asked(patch, old, cluster, dict(options)))
    stored = apply_patch(patch, mutated.patch)
    return mutated, validate(*_asked(stored, old, cluster, dict(options))), stored


def _asked(patch: Any, old: Any, cluster: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    if old is not None:
        patch, old = _updated(patch), _updated(old)
    options = dict(options)
    request = {name: options.pop(name) for name in ("user", "groups", "operation", "dryRun") if name in options}
    if "patches" not in options:
        options["patches"] = known([] if old is None else [old])
    sight = cluster if isinstance(cluster, Sight) else Sight(cluster or racks())
    written = options.pop("written", True)
    if sight.inventory is not None and written:
        before = {} if old is None else {old["metadata"]["name"]: _stored(old)}
        patches = options["patches"]._replace(patches={**options["patches"].patches, **before}, memo=None)
        sight = sight._replace(inventory=standing(sight.inventory, patches))
    context = make_context(**{"sight": sight, **options})
    return make_admission_request(patch, old, **request), context


def _stored(patch: Any) -> ResourceSlicePatch:
    found = decode_patch(Reader.of(patch, []))
    return structs.replace(found, meta=structs.replace(found.meta, uid=found.meta.uid or f"uid-of-{found.meta.name}"))


def _updated(patch: Any) -> Any:
    meta = {"uid": "uid-of-patch", "creationTimestamp": CREATED_TEXT, **patch["metadata"], "resourceVersion": "7"}
    return {**patch, "metadata": meta}


def figures(decision: Decision) -> dict[str, int]:
    """The figures in the audit annotation."""
    words = decision.annotations["impact"].partition(" over=")[0].split()
    return {name: int(number) for name, _, number in (word.partition("=") for word in words) if number}


def taints_of(patch: Any) -> list[tuple[str, str, datetime | str]]:
    """Key, effect and time of each taint of a manifest."""
    return [(each["key"], each["effect"], each["timeAdded"]) for each in patch["spec"]["devices"]["taints"]]
