"""The ConfigMap that holds our policy, judged before it is stored: field errors at `data[policy.yaml]...`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from webhook.admission.context import AdmissionContext
from webhook.admission.decision import ALLOWED, Decision
from webhook.admission.review import AdmissionRequest
from webhook.api.field import FieldError, Finding, Path, Severity, forbidden, required, type_invalid
from webhook.api.meta import GroupVersionResource

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
POLICY_KEY: Final = "policy.yaml"
CANDIDATE_KEY: Final = "candidate.yaml"
_KEYS: Final = (POLICY_KEY, CANDIDATE_KEY)
_SIMILARITY: Final = 0.7
_DATA: Final = Path.root().child("data")
_BINARY_DATA: Final = Path.root().child("binaryData")


def config_map_decision(request: AdmissionRequest, context: AdmissionContext) -> Decision:
    """Decide whether the documents in a ConfigMap can be used. What an update left alone is not judged again."""
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
            yield Finding(Severity.DENY, _misplaced(key))
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
    if data.get(POLICY_KEY) is None and POLICY_KEY not in binary:
        lost = request.operation == "CREATE" or POLICY_KEY in before or POLICY_KEY in binary_before
        if lost or (data, binary) != (before, binary_before):
            yield Finding(Severity.DENY if lost else Severity.WARN, missing_policy(data, binary))


def missing_policy(data: Collection[str], binary: Collection[str]) -> FieldError:
    """Say what is wrong with a ConfigMap that has no text under `policy.yaml`, by its keys.

    It is a broken policy and not an absent one: most often a key is misspelt, or kubectl took a file that is not UTF-8
    for binary. Only the deletion of the ConfigMap asks for the built-in policy.
    """
    if POLICY_KEY in binary:
        return _misplaced(POLICY_KEY)
    for path, keys in ((_DATA, data), (_BINARY_DATA, binary)):
        close = alike(POLICY_KEY, keys)
        if close is not None:
            return forbidden(path.key(close), f'unknown key, did you mean "{POLICY_KEY}"?')
    return required(_DATA.key(POLICY_KEY), "must hold the policy; to use the built-in one, delete the ConfigMap")


def unreadable_candidate(binary: Collection[str]) -> FieldError | None:
    """Say what is wrong with a candidate that is there, but not as text; None if there is none."""
    return _misplaced(CANDIDATE_KEY) if CANDIDATE_KEY in binary else None


def alike(key: str, keys: Collection[str]) -> str | None:
    """Return the key that was probably meant to be this one, or None."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for mistakes

    others = {each.lower(): each for each in keys if each not in _KEYS}
    close = get_close_matches(key, sorted(others), 1, _SIMILARITY)
    return others[close[0]] if close else None


def _misplaced(key: str) -> FieldError:
    return forbidden(_BINARY_DATA.key(key), "must be in data, as text in UTF-8")


def _data(value: Any, field: str = "data") -> dict[str, Any]:
    data = value.get(field) if isinstance(value, dict) else None
    return data if isinstance(data, dict) else {}
