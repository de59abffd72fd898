"""The ConfigMap that holds our policy, judged before it is stored: field errors at `data[policy.yaml]...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.admission.decision import ALLOWED, Decision
from webhook.api.field import FieldError, Finding, Path, Severity, forbidden, required, type_invalid
from webhook.api.meta import GroupVersionResource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
POLICY_KEY: Final = "policy.yaml"
CANDIDATE_KEY: Final = "candidate.yaml"
_KEYS: Final = (POLICY_KEY, CANDIDATE_KEY)
_DATA: Final = Path.root().child("data")


def config_map_decision(request: AdmissionRequest, context: AdmissionContext) -> Decision:
    """Whether the documents in a ConfigMap can be used. What an update left alone is not judged again."""
    if request.problems:
        return Decision(problem="; ".join(request.problems))
    if request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
        return ALLOWED
    if not isinstance(request.object, dict):
        return Decision(problem="request.object: Required value: must be the object that is created or updated")
    findings = list(_findings(request, context))
    if not findings:
        return ALLOWED
    denied = any(finding.severity is Severity.DENY for finding in findings)
    rules = sorted({finding.name for finding in findings})
    return Decision(
        tuple(findings), annotations={"decision": "denied" if denied else "warned", "rules": ",".join(rules)}
    )


def _findings(request: AdmissionRequest, context: AdmissionContext) -> Iterator[Finding]:
    data, before = _data(request.object), _data(request.old_object)
    binary, binary_before = _data(request.object, "binaryData"), _data(request.old_object, "binaryData")
    for key in _KEYS:
        if key in binary and binary[key] != binary_before.get(key):
            misplaced = forbidden(Path.root().child("binaryData").key(key), "must be in data, as text")
            yield Finding(Severity.DENY, misplaced)
    for key in _KEYS:
        text = data.get(key)
        if text is None or (text == before.get(key) and before):
            continue
        if not isinstance(text, str):
            yield Finding(Severity.DENY, type_invalid(_DATA.key(key), text, "a string"))
        elif context.read_policy is None:
            yield Finding(Severity.WARN, forbidden(_DATA.key(key), "is not judged here"))
        else:
            context.budget.check("policy")
            loaded = context.read_policy(text, _DATA.key(key), context.budget.check)
            yield from (Finding(Severity.DENY, error) for error in loaded.errors)
            yield from loaded.warnings
    if POLICY_KEY not in data and (request.operation == "CREATE" or POLICY_KEY in before):
        yield Finding(Severity.WARN, _without_policy())


def _without_policy() -> FieldError:
    return required(_DATA.key(POLICY_KEY), "without it the built-in policy holds, which allows every toleration")


def _data(value: Any, field: str = "data") -> dict[str, Any]:
    data = value.get(field) if isinstance(value, dict) else None
    return data if isinstance(data, dict) else {}
