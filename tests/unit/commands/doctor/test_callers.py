"""What `doctor` says of callers, and of the policy that keeps authors from being made up."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from webhook.commands.doctor.callers import author_policy_check, callers_check, shipped

MANIFESTS: Final = Path(__file__).parents[4] / "manifests"
POLICY, BINDING = yaml.safe_load_all((MANIFESTS / "base/author-policy.yaml").read_text())


def serving(*arguments: str, **environment: str) -> dict[str, Any]:
    """A Deployment with these flags for `serve`, beside a container that has others."""
    env = [{"name": f"DEVICE_TAINT_WEBHOOK_{name}", "value": text} for name, text in environment.items()]
    other = {"name": "proxy", "args": ["--client-ca-file=x"]}
    containers = [other, {"name": "serve", "args": ["serve", *arguments], "env": env}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


@pytest.mark.parametrize(
    ("deployment", "status", "begins"),
    [
        (serving(), "warn", "API servers do not authenticate"),
        (serving("--client-names=a"), "warn", "API servers do not authenticate"),
        (serving(TRUST_UNAUTHENTICATED_CALLERS="false"), "warn", "API servers do not authenticate"),
        (serving(TRUST_UNAUTHENTICATED_CALLERS="true"), "ok", "every client is trusted as an API server"),
        (serving("--trust-unauthenticated-callers"), "ok", "every client is trusted as an API server"),
        (serving(CLIENT_CA_FILE="/ca.crt"), "ok", "only clients with an API server's certificate"),
        (serving("--client-ca-file=/ca.crt"), "ok", "only clients with an API server's certificate"),
        ({"spec": {}}, "warn", "API servers do not authenticate"),
    ],
)
def test_callers_are_judged_by_the_flags_of_serve(deployment: dict[str, Any], status: str, begins: str) -> None:
    """R2."""
    check = callers_check(deployment)
    assert (check.name, check.status.value) == ("callers", status)
    assert check.message.startswith(begins)


def test_base_and_component_are_told_apart() -> None:
    (base,) = yaml.safe_load_all((MANIFESTS / "base/deployment.yaml").read_text())
    assert callers_check(base).status.value == "warn"
    component = yaml.safe_load((MANIFESTS / "components/client-certificates/kustomization.yaml").read_text())
    (patch,) = component["patches"]
    assert callers_check(yaml.safe_load(patch["patch"])).status.value == "ok"


def test_author_policy_is_compared_with_the_manifest() -> None:
    """author_policy.json holds both specs of the manifest, for programs that have no manifests beside them."""
    assert shipped() == {POLICY["kind"]: POLICY["spec"], BINDING["kind"]: BINDING["spec"]}
    assert author_policy_check(POLICY, BINDING).status.value == "ok"


def test_author_policy_that_is_missing_or_not_bound_is_told() -> None:
    assert author_policy_check(None, BINDING).message.startswith(
        "no ValidatingAdmissionPolicy device-taint-webhook-authors"
    )
    assert author_policy_check(POLICY, None).message.startswith(
        "no ValidatingAdmissionPolicyBinding device-taint-webhook-authors"
    )
    assert author_policy_check(None, None).status.value == "warn"


@pytest.mark.parametrize(
    ("of_binding", "field", "value"),
    [
        (False, "failurePolicy", "Ignore"),
        (False, "validations", []),
        (False, "matchConditions", [{"name": "never", "expression": "false"}]),
        (False, "paramKind", {"apiVersion": "v1", "kind": "ConfigMap"}),
        (True, "validationActions", ["Audit"]),
        (True, "matchResources", {"namespaceSelector": {"matchLabels": {"a": "b"}}}),
    ],
)
def test_author_policy_that_was_changed_or_narrowed_is_told(of_binding: bool, field: str, value: Any) -> None:  # noqa: FBT001 -- a table's column
    objects = [copy.deepcopy(POLICY), copy.deepcopy(BINDING)]
    changed = objects[of_binding]
    changed["spec"][field] = value
    check = author_policy_check(*objects)
    assert (check.status.value, check.message) == (
        "warn",
        f"changed from the manifests, so templates may be able to name any author: {changed['kind']} spec.{field}",
    )
