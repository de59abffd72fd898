"""Rules sent to the guard of a small cluster, and what it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tests.builders import DRIVER, NOW, decoded, make_admission_request, make_context, make_rule, make_taint
from tests.unit.inventory.values import claim, inventory_of, on, pool_slice
from webhook.admission.chain import validate
from webhook.admission.guard import GUARD
from webhook.api.meta import format_time
from webhook.api.rules import CONFIRM_IMPACT, EVICT
from webhook.inventory.state import Sight
from webhook.policy.model import ImpactLimits, ImpactSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from webhook.admission.decision import Decision
    from webhook.inventory.state import Inventory, InventoryObject

UNKNOWN: Final = Sight(None, "claims were not read yet")
NOWHERE: Final = {"driver": "nobody.example.com"}
_TEXT: Final = re.compile(r'"(v1 [^"]+ of=[a-z2-7]{16})"')
OTHER: Final = (
    "was printed for another object: name, selector, key, value, effect, /evict, /scope or a past timeAdded differ"
)
UNREADABLE: Final = 'is not a confirmation: it must be like "v1 devices=4 claims=4 pods=4 namespaces=1 of=..."'


def node(number: int) -> dict[str, str]:
    """A selector of all devices of a node."""
    return {"driver": DRIVER, "pool": f"node-{number}"}


def fleet(nodes: int = 4, namespace_of: Callable[[int], str] = lambda _: "ml") -> list[InventoryObject]:
    """Nodes with two devices each, and one pod on each node's first device."""
    return [
        each
        for number in range(nodes)
        for each in (
            pool_slice("gpu-0", "gpu-1", name=f"slice-{number}", pool=f"node-{number}"),
            claim(f"claim-{number}", on(pool=f"node-{number}"), users=[f"u-{number}"], namespace=namespace_of(number)),
        )
    ]


def held(*manifests: Any) -> Inventory:
    """An inventory of these objects."""
    values = [decoded(manifest) for manifest in manifests]
    assert not any(errors for _, errors in values)
    return inventory_of(*[value for value, _ in values])


def tainting(
    selector: Any = "default",
    effect: str = "NoExecute",
    *,
    name: str = "unhealthy-gpu",
    added: datetime = NOW,
    evict: bool = False,
    text: str | None = None,
    annotations: dict[str, str] | None = None,
    generate_name: str | None = None,
    version: str = "v1",
    **taint: Any,
) -> Any:
    """A rule; all nodes' devices of the driver unless a selector is given."""
    chosen = {"driver": DRIVER} if selector == "default" else selector
    given = dict(annotations or {})
    if evict:
        given[EVICT] = "true"
    if text is not None:
        given[CONFIRM_IMPACT] = text
    meta: dict[str, Any] = {"name": name, "annotations": given}
    if generate_name is not None:
        meta["generateName"] = generate_name
    return make_rule(
        selector=chosen,
        taint=make_taint(effect=effect, time_added=format_time(added), **taint),
        meta=meta,
        version=version,
    )


def allowing(**limits: Any) -> ImpactSettings:
    """Guard settings with these limits for everybody."""
    return ImpactSettings(limits=(ImpactLimits(**limits),))


def ask(rule: Any, old: Any = None, *, cluster: Inventory | Sight | None = None, **options: Any) -> Decision:
    """The verdict of /validate. By default the cluster is four nodes."""
    if old is not None and rule is not None:
        rule, old = _versioned(rule), _versioned(old)
    request = {name: options.pop(name) for name in ("user", "groups", "operation", "dryRun") if name in options}
    if cluster is None:
        cluster = inventory_of(*fleet())
    sight = cluster if isinstance(cluster, Sight) else Sight(cluster)
    context = make_context(**{"sight": sight, **options})
    return validate(make_admission_request(rule, old, **request), context)


def _versioned(rule: Any) -> Any:
    return {**rule, "metadata": {**rule["metadata"], "resourceVersion": "7"}}


def told(decision: Decision) -> list[tuple[str, str]]:
    """What the guard says: how, and what."""
    return [(each.severity.value, each.error.detail) for each in decision.findings if each.rule == GUARD]


def refusals(decision: Decision) -> list[str]:
    return [text for severity, text in told(decision) if severity == "deny"]


def over(decision: Decision) -> list[str]:
    """Why it was too much, as the audit log has it."""
    _, found, rest = decision.annotations.get("impact", "").partition(" over=")
    return rest.partition(" ")[0].split(";") if found else []


def text_in(decision: Decision) -> str:
    """The text that a refusal offers."""
    (text,) = set(_TEXT.findall(" ".join(refusals(decision))))
    return str(text)
