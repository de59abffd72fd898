"""What `doctor` says of admission policies that API servers evaluate by themselves."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.policy.documents import make_defaults, make_entry, policy_of
from webhook.commands.doctor.fallback import fallback_check
from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject, key_of, managed
from webhook.policy.vap.fallback import export_fallback

POLICY: Final = policy_of(
    rules=[make_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})],
    defaultTolerations=[make_defaults("wait", key="maint", operator="Exists")],
    trustedNamespaceLabels=["example.com/tier"],
)


def stored(**flags: Any) -> dict[AdmissionObjectKey, StoredObject]:
    objects = export_fallback(POLICY, namespace="mine", **flags).objects
    found = [StoredObject(key_of(obj), managed(obj)["metadata"]["labels"], obj["spec"], "u", 1, "1") for obj in objects]
    return {each.key: each for each in found}


def test_there_is_no_line_where_nothing_is_wanted() -> None:
    key = AdmissionObjectKey("ValidatingAdmissionPolicy", "device-taint-webhook-guard")
    foreign = StoredObject(key, {}, {}, "u", 1, "1")
    assert fallback_check(POLICY, {}, "mine", syncs=False) is None
    assert fallback_check(POLICY, {foreign.key: foreign}, "mine", syncs=False) is None


@pytest.mark.parametrize("flags", [{}, {"mutating_version": None}, {"protect_labels": True}])
def test_what_is_as_in_the_policy_passes(flags: Any) -> None:
    """Also exported by hand, with the flags of whoever did."""
    check = fallback_check(POLICY, stored(**flags), "mine", syncs=False)
    assert check is not None
    assert (check.name, check.status.value) == ("fallback", "ok")
    assert check.message.startswith(f"{len(stored(**flags))} admission policies and bindings as in the policy")


def test_what_differs_is_named_with_what_to_do() -> None:
    there = stored()
    del there[AdmissionObjectKey("ValidatingAdmissionPolicyBinding", "device-taint-webhook-tolerations")]
    for syncs, advice in ((False, "export and apply them again"), (True, "see the log of the leader of evict")):
        check = fallback_check(POLICY, there, "mine", syncs=syncs)
        assert check is not None
        assert check.status.value == "warn"
        assert check.message.endswith("ValidatingAdmissionPolicyBinding device-taint-webhook-tolerations is missing")
        assert check.advice.startswith(advice)


def test_more_than_a_few_are_counted() -> None:
    check = fallback_check(POLICY, {}, "mine", syncs=True, mutating_version=None)
    assert check is not None
    assert check.message.endswith("is missing, and 1 more")
    assert "Mutating" not in check.message


def test_policy_that_cannot_be_loaded_is_not_compared() -> None:
    check = fallback_check(None, stored(), "mine", syncs=True)
    assert check is not None
    assert check.status.value == "ok"
    assert "cannot be loaded" in check.message
