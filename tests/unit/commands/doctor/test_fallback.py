"""What `doctor` says of admission policies that API servers evaluate by themselves."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.policy.documents import make_entry, policy_of
from webhook.commands.doctor.checks import fallback_check
from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject, key_of
from webhook.policy.vap.export import export

POLICY: Final = policy_of(
    rules=[make_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})],
    trustedNamespaceLabels=["example.com/tier"],
)


def stored(**flags: Any) -> dict[AdmissionObjectKey, StoredObject]:
    objects = export(POLICY, namespace="mine", **flags).objects
    found = [StoredObject(key_of(obj), obj["metadata"]["labels"], obj["spec"]) for obj in objects]
    return {each.key: each for each in found}


def test_there_is_no_line_where_nothing_is_wanted() -> None:
    key = AdmissionObjectKey("ValidatingAdmissionPolicy", "device-taint-webhook-guard")
    foreign = StoredObject(key, {}, {})
    assert fallback_check(POLICY, {}, "mine") is None
    assert fallback_check(POLICY, {foreign.key: foreign}, "mine") is None


@pytest.mark.parametrize("flags", [{}, {"protect_labels": True}])
def test_what_is_as_in_the_policy_passes(flags: Any) -> None:
    """With the flags that it was exported with."""
    check = fallback_check(POLICY, stored(**flags), "mine")
    assert check is not None
    assert (check.name, check.status.value) == ("fallback", "ok")
    assert check.message.startswith(f"{len(stored(**flags))} admission policies and bindings as in the policy")


def test_what_differs_is_named_with_what_to_do() -> None:
    there = stored()
    del there[AdmissionObjectKey("ValidatingAdmissionPolicyBinding", "device-taint-webhook-tolerations")]
    check = fallback_check(POLICY, there, "mine")
    assert check is not None
    assert check.status.value == "warn"
    assert check.message.endswith("ValidatingAdmissionPolicyBinding device-taint-webhook-tolerations is missing")
    assert check.advice.startswith("export and apply them again")


def test_more_than_a_few_are_counted() -> None:
    (known, *_) = stored().values()
    left = known._replace(key=AdmissionObjectKey(known.key.kind, "left"))
    check = fallback_check(POLICY, {left.key: left}, "mine")
    assert check is not None
    assert check.message.endswith("is missing, and 2 more")


def test_policy_that_cannot_be_loaded_is_not_compared() -> None:
    check = fallback_check(None, stored(), "mine")
    assert check is not None
    assert check.status.value == "ok"
    assert "cannot be loaded" in check.message
