"""Namespaces that the registration leaves out: `doctor` neither probes in them, nor expects policies to judge there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tables import table
from tests.unit.commands.api_server import ApiServer, serving
from tests.unit.commands.doctor.test_checks import POLICY
from tests.unit.commands.doctor.test_command import CONFIG_MAP
from webhook.commands.doctor import command as doctor
from webhook.commands.shared.main import main_of
from webhook.commands.shared.policy_files import read_policy
from webhook.policy.vap.export import export
from webhook.policy.vap.objects import ADMISSION_RESOURCES

ADMISSION: Final = "/apis/admissionregistration.k8s.io"
VALIDATING: Final = f"{ADMISSION}/v1/validatingwebhookconfigurations/device-taint-webhook"
CLAIMS: Final = "claims.validate.devicetaint.io"


def registered(*exempt: str) -> dict[str, Any]:
    """The configuration, which asks nothing about these namespaces."""
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(exempt)}
    entry = {"name": CLAIMS, "namespaceSelector": {"matchExpressions": [left_out]}}
    return {"metadata": {"name": "device-taint-webhook"}, "webhooks": [entry]}


def examined(
    tables: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str], name: str, *words: str
) -> list[tuple[str, str]]:
    """Status and message of the checks of this name."""
    resources = [{"name": name} for name in ("resourceclaims", *ADMISSION_RESOURCES.values())]
    tables.objects |= {
        "/version": {"gitVersion": "v1.37.2"},
        "/apis/resource.k8s.io/v1": {"resources": resources},
        f"{ADMISSION}/v1": {"resources": resources},
    }
    tables.verdict = 201, {"status": {"allowed": True}}
    with serving(tables, folder):
        main_of(doctor, [f"--kubeconfig={folder / 'kubeconfig'}", "-o", "json", *words])
    output, errors = capsys.readouterr()
    assert "waiting: " not in errors
    return [(each["status"], each["message"]) for each in json.loads(output)["checks"] if each["name"] == name]


@table(
    "exempt, words, probed",
    {
        "no namespace": ([], [], "default"),
        "default": (["default"], [], "kube-public"),
        "two of them": (["kube-public", "default"], [], "kube-node-lease"),
        "another one": (["ml"], ["--probe-namespace=web"], "web"),
        "the one that is named": (["ml"], ["--probe-namespace=ml"], ""),
    },
)
def test_claims_are_probed_where_the_webhook_is_asked_about_them(
    exempt: list[str], words: list[str], probed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = ApiServer()
    tables.objects = {VALIDATING: registered("device-taint-webhook", *exempt)}
    [(status, message)] = examined(tables, tmp_path, capsys, f"probe {CLAIMS}", *words)
    claims = [path for method, path, _ in tables.sent if method == "POST" and "/resourceclaims" in path]
    assert [f"/namespaces/{probed}/" in path for path in claims] == [True] * bool(probed)
    if not probed:
        assert (status, message) == ("warn", "not probed: it leaves out namespace ml")


def test_nothing_is_waited_for_that_is_not_probed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = ApiServer()
    tables.objects = {VALIDATING: registered("ml")}
    assert examined(tables, tmp_path, capsys, f"probe {CLAIMS}", "--probe-namespace=ml", "--wait=1")


@table(
    "registration, exported, status",
    {
        "as registered": (registered("infra", "kube-system", "device-taint-webhook"), ("kube-system", "infra"), "ok"),
        "not as registered": (registered("infra", "kube-system", "device-taint-webhook"), ("kube-system",), "warn"),
        "as shipped": (404, ("kube-system",), "ok"),
        "with others while nothing is registered": (404, ("infra", "kube-system"), "ok"),
    },
)
def test_exported_policies_are_to_leave_out_what_the_registration_does(
    registration: Any, exported: tuple[str, ...], status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{POLICY}rules: [{{name: no-xid, action: deny, match: {{tolerations: {{keys: [xid]}}}}}}]\n"
    policy = read_policy(text).policy
    assert policy is not None
    made = export(policy, exempt=exported).objects
    tables = ApiServer()
    for kind, plural in ADMISSION_RESOURCES.items():
        tables.collections[f"{ADMISSION}/v1/{plural}"] = [each for each in made if each["kind"] == kind]
    tables.objects = {VALIDATING: registration, CONFIG_MAP: {"data": {"policy.yaml": text}}}
    [(found, message)] = examined(tables, tmp_path, capsys, "fallback")
    assert found == status, message
