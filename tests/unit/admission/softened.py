"""Rules sent to both webhooks under a policy that softens, one after the other as an API server does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.builders import make_admission_request, make_context
from tests.unit.admission.guarding import _versioned, fleet, tainting
from tests.unit.inventory.values import inventory_of
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import apply_patch
from webhook.api.rules import EVICT, SOFTENED_FROM
from webhook.inventory.state import Inventory, Sight
from webhook.policy.model import ImpactLimits, ImpactSettings, RequesterMatch, Softening

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

OPERATOR: Final = "system:serviceaccount:health:operator"
ACCOUNT: Final = RequesterMatch(service_accounts=("health/operator",))
MARKS: Final = {EVICT: "true", SOFTENED_FROM: "NoExecute"}


class Sent(NamedTuple):
    """What both webhooks say, and the object as it is stored if it is allowed."""

    mutated: Decision
    judged: Decision
    stored: Any

    @property
    def softened(self) -> bool:
        annotations = self.stored["metadata"].get("annotations") or {}
        marked = all(annotations.get(name) == text for name, text in MARKS.items())
        return marked and self.stored["spec"]["taint"]["effect"] == "NoSchedule"

    @property
    def remark(self) -> str:
        """The warning about the softening; empty if there is none."""
        return "".join(finding.error.detail for finding in self.mutated.findings if finding.code == "DT121")

    @property
    def time(self) -> str:
        return str(self.stored["spec"]["taint"]["timeAdded"])


def softening(when: Softening = Softening.OVER, *, others: Any = None, **fields: Any) -> ImpactSettings:
    """An entry of the operator that softens at 3 pods, and one for all others; `fields` with the names of either."""
    own: dict[str, Any] = {
        name: fields.pop(name)
        for name in ("pods", "claims", "devices", "namespaces", "pending_pods", "taints")
        if name in fields
    }
    given: dict[str, Any] = {"pods": 3, "soften": when, **own}
    entry = ImpactLimits(ACCOUNT, **given)
    return ImpactSettings(limits=(entry, others or ImpactLimits(pods=3)), **fields)


def send(rule: Any, old: Any = None, *, user: str = OPERATOR, cluster: Any = None, **options: Any) -> Sent:
    """A rule sent by the operator; by default the cluster is four nodes with a pod each."""
    if old is not None:
        rule, old = _versioned(rule), _versioned(old)
    request = {name: options.pop(name) for name in ("groups", "operation") if name in options}
    found = inventory_of(*fleet()) if cluster is None else cluster
    sight = Sight(found) if isinstance(found, Inventory) else found
    context = make_context(**{"sight": sight, "impact": softening(), **options})
    mutated = mutate(make_admission_request(rule, old, user=user, **request), context)
    stored = apply_patch(rule, mutated.patch)
    judged = validate(make_admission_request(stored, old, user=user, **request), context)
    return Sent(mutated, judged, stored)


def stored_softened(selector: Any = "default", **fields: Any) -> Any:
    """A rule as it is stored once it was softened."""
    return tainting(selector, "NoSchedule", annotations={**MARKS, **fields.pop("annotations", {})}, **fields)
