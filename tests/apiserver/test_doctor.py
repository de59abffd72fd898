"""`doctor` and a real installation: well, and with one thing wrong at a time."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import pytest
import yaml

from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import POLICY_MAP, Stage, hash_of, make_policy
from tests.apiserver.registration.samples import MANIFESTS, OWN_NAMESPACE
from tests.controlplane.client import path
from tests.controlplane.pki import Authority
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

_Answer = TypeVar("_Answer")
HOOKS: Final = "admissionregistration.k8s.io/v1"
VALIDATING: Final = path(HOOKS, "validatingwebhookconfigurations", name="device-taint-webhook")
DEPLOYMENT: Final = path("apps/v1", "deployments", namespace=OWN_NAMESPACE, name="device-taint-webhook")
AUTHOR_POLICY: Final = MANIFESTS / "base/author-policy.yaml"
WELL: Final = {
    *("certificate", "clock", "deployment", "access", "author policy", "policy", "registration", "versions"),
    *("probe rules.validate.devicetaint.io", "probe claims.validate.devicetaint.io"),
    *("probe templates.validate.devicetaint.io", "probe author policy", "probe slices.validate.devicetaint.io"),
    *("probe policy.validate.devicetaint.io",),
}
TIMED: Final = {"certificate", "clock"}
"""It waits 5 s for a certificate, and compares clocks: a busy machine may take longer once, not every time."""


class Examined:
    """What `doctor` said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.error = done.stderr
        self.checks: list[dict[str, str]] = json.loads(done.stdout)["checks"] if done.stdout else []

    @property
    def names(self) -> set[str]:
        return {check["name"] for check in self.checks}

    @property
    def amiss(self) -> dict[str, str]:
        """What is not ok, as `status message`."""
        return {
            check["name"]: f"{check['status']} {check['message']}" for check in self.checks if check["status"] != "ok"
        }


def doctor(plane: ControlPlane, *arguments: str, kubeconfig: Any = None) -> Examined:
    command = [
        sys.executable,
        "-m",
        "webhook",
        "doctor",
        f"--kubeconfig={kubeconfig or plane.kubeconfig}",
        "-o",
        "json",
    ]
    return Examined(subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=600))


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Everything installed, but pods: a Deployment says what the test makes it say."""
    with own_stage(request) as stage:
        deployment = next(
            each
            for each in yaml.safe_load_all((MANIFESTS / "base/deployment.yaml").read_text())
            if each["kind"] == "Deployment"
        )
        assert stage.client.create(DEPLOYMENT.rpartition("/")[0], deployment).ok
        replicas(stage, 2)
        stage.start_webhook()
        stage.use(make_policy())
        stage.register()
        yield stage
        stage.webhook.keep_logs = request.session.testsfailed > 0
        stage.stop_webhook()


def replicas(stage: Stage, ready: int) -> None:
    wanted = stage.client.get(DEPLOYMENT).object["spec"]["replicas"]
    status = {"replicas": wanted, "readyReplicas": ready, "updatedReplicas": wanted}
    assert stage.client.patch(f"{DEPLOYMENT}/status", {"status": status}).ok


def patched(stage: Stage, url: str, patch: Any) -> None:
    reply = stage.client.patch(url, patch)
    assert reply.ok, reply.message


def bundles(stage: Stage, bundle: bytes) -> None:
    """Gives every validating entry this caBundle."""
    webhooks = stage.client.get(VALIDATING).object["webhooks"]
    for webhook in webhooks:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
    patched(stage, VALIDATING, {"webhooks": webhooks})


def once(stage: Stage, name: str) -> Examined:
    """What it says once that check is amiss; API servers take a second to notice changes of what they go by."""
    found: list[Examined] = []

    def amiss() -> bool:
        found.append(doctor(stage.plane))
        return name in found[-1].amiss

    wait_until(amiss, f"{name} is amiss")
    return found[-1]


def _well(ask: Callable[[], _Answer], amiss: Callable[[_Answer], set[str]]) -> _Answer:
    """What it says, at the fourth time at the latest, once not only checks that a busy machine spoils are amiss."""
    for _ in range(4):
        found = amiss(answer := ask())
        if not found or not found <= TIMED:
            break
    return answer


def _amiss_in(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The checks of lines that are not ok; advice is indented."""
    lines = [line for line in done.stdout.splitlines() if line[:4] not in ("ok  ", "    ")]
    broken = {"traceback"} if "Traceback" in done.stderr else set()
    return {line[6:].partition(":")[0] for line in lines} | broken


def test_a_healthy_installation_is_well(stage: Stage) -> None:
    found = _well(lambda: doctor(stage.plane, "--wait", "300"), lambda found: set(found.amiss))
    assert (found.code, found.amiss) == (0, {}), found.error
    assert found.names == WELL
    assert "this machine and the API server agree" in [each["message"] for each in found.checks]
    assert "the webhook and the API server agree" in [each["message"] for each in found.checks]


@pytest.mark.whole
def test_text_is_a_line_for_each_check(stage: Stage) -> None:
    command = [sys.executable, "-m", "webhook", "doctor", f"--kubeconfig={stage.plane.kubeconfig}"]
    done = _well(
        lambda: subprocess.run(command, capture_output=True, text=True, check=False, timeout=600),
        _amiss_in,
    )
    assert done.returncode == 0, done
    assert {line[:4] for line in done.stdout.splitlines()} == {"ok  "}


@pytest.mark.whole
def test_nothing_is_left_behind(stage: Stage) -> None:
    doctor(stage.plane)
    for plural in ("devicetaintrules", "resourceslices", "resourceclaims", "resourceclaimtemplates"):
        assert stage.client.get(path("resource.k8s.io/v1", plural)).items == []


@pytest.mark.whole
def test_a_ca_that_signed_something_else_is_told(stage: Stage) -> None:
    right = stage.webhook.ca_pem
    try:
        bundles(stage, Authority().pem)
        found = once(stage, "probe rules.validate.devicetaint.io")
        assert found.code == 1
        assert "does not match the served certificate" in found.amiss["certificate"]
        assert "failed calling webhook" in found.amiss["probe rules.validate.devicetaint.io"]
        assert "x509" in found.amiss["probe rules.validate.devicetaint.io"]
        assert found.amiss["probe claims.validate.devicetaint.io"].startswith("fail not called, or no answer")
        assert found.amiss["probe policy.validate.devicetaint.io"].startswith("fail not called, or no answer")
        bundles(stage, b"")
        assert "no caBundle, so calls fail: rules.validate" in doctor(stage.plane).amiss["registration"]
    finally:
        bundles(stage, right)
    assert doctor(stage.plane, "--wait", "300").amiss == {}


@pytest.mark.whole
def test_nobody_there_and_waiting_for_somebody(stage: Stage) -> None:
    stage.stop_webhook()
    found = doctor(stage.plane, "--wait", "2")
    assert found.code == 1
    assert "failed calling webhook" in found.amiss["probe rules.validate.devicetaint.io"]
    assert found.amiss["probe slices.validate.devicetaint.io"].startswith("fail not called, or no answer")
    command = [sys.executable, "-m", "webhook", "doctor", f"--kubeconfig={stage.plane.kubeconfig}", "--wait", "500"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        stage.start_webhook()
        stage.register()
        output, _ = waiting.communicate(timeout=600)
    assert waiting.returncode == 0, output


@pytest.mark.whole
def test_replicas_that_are_not_ready(stage: Stage) -> None:
    try:
        replicas(stage, 1)
        found = doctor(stage.plane)
        assert (found.code, found.amiss) == (
            1,
            {"deployment": "warn device-taint-webhook: 1 of 2 replicas ready, 2 up to date"},
        )
        replicas(stage, 0)
        assert doctor(stage.plane).amiss == {"deployment": "fail device-taint-webhook: 0 of 2 replicas ready"}
    finally:
        replicas(stage, 2)


@pytest.mark.whole
def test_a_right_that_is_missing(stage: Stage) -> None:
    url = path("rbac.authorization.k8s.io/v1", "clusterroles", name="device-taint-webhook")
    rules = stage.client.get(url).object["rules"]
    try:
        patched(stage, url, {"rules": [rule for rule in rules if "namespaces" not in rule["resources"]]})
        account = "device-taint-webhook may not"
        denied = "; ".join(f"{account} {verb} namespaces" for verb in ("get", "list", "watch"))
        assert once(stage, "access").amiss == {"access": f"fail {denied}"}
    finally:
        patched(stage, url, {"rules": rules})
    wait_until(lambda: doctor(stage.plane).amiss == {}, "rights are seen to be there again")


@pytest.mark.whole
def test_author_policy_that_is_not_bound_or_only_audits(stage: Stage) -> None:
    """R2."""
    url = path(HOOKS, "validatingadmissionpolicybindings", name="device-taint-webhook-authors")
    binding = "ValidatingAdmissionPolicyBinding device-taint-webhook-authors"
    unknown, accepted = "template authors are unknown", "fail the API server accepted a forged author"
    try:
        patched(stage, url, {"spec": {"validationActions": ["Audit"]}})
        amiss = once(stage, "probe author policy").amiss
        changed = f"warn {binding} is not as shipped: spec.validationActions: {unknown}"
        assert amiss.pop("probe author policy").startswith(accepted)
        assert amiss == {"author policy": changed}
        assert stage.client.delete(url).ok
        amiss = once(stage, "probe author policy").amiss
        assert amiss.pop("probe author policy").startswith(accepted)
        assert amiss == {"author policy": f"warn {binding} is missing: {unknown}"}
    finally:
        assert stage.plane.kubectl("apply", "-f", AUTHOR_POLICY).code == 0
    wait_until(lambda: doctor(stage.plane).amiss == {}, "forged authors are refused again")


@pytest.mark.whole
def test_policies_that_are_mild_broken_or_missing(stage: Stage) -> None:
    try:
        stage.use(make_policy(mode="warn"))
        (text,) = doctor(stage.plane).amiss.values()
        assert text.endswith("mode warn: nothing is refused")
        stage.use_nothing()
        (text,) = once(stage, "policy").amiss.values()
        gone = hash_of(make_policy(mode="warn"))
        assert text == f"warn policy {gone} is gone, so the built-in policy applies: all tolerations are allowed"
        stage.unregister()
        assert stage.write_policy("mode: loose").ok
        found = doctor(stage.plane)
        assert found.amiss["policy"].startswith("fail cannot be loaded: ")
        kept = "; the built-in policy stays in use"
        wait_until(lambda: doctor(stage.plane).amiss["policy"].endswith(kept), "which one is in use is told")
        assert found.amiss["registration"].endswith("API servers do not call the webhook")
    finally:
        stage.client.delete(POLICY_MAP)
        stage.use(make_policy())
        stage.register()


def test_somebody_who_may_not_look_is_told_so(stage: Stage) -> None:
    found = doctor(stage.plane, kubeconfig=stage.plane.kubeconfig_of("visitor", ()))
    assert found.code == 1
    assert {text.partition(":")[0] for text in found.amiss.values()} == {"warn not checked, permission denied"}


@pytest.mark.whole
def test_no_cluster_is_two(stage: Stage, tmp_path: Any) -> None:
    config = yaml.safe_load(stage.plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "nowhere").write_text(yaml.safe_dump(config))
    found = doctor(stage.plane, kubeconfig=tmp_path / "nowhere")
    assert (found.code, found.checks) == (2, [])
    assert found.error.startswith("device-taint-webhook doctor: GET /version: ")


@pytest.mark.whole
def test_the_in_tree_evictor_is_found_by_a_rule_that_is_gone_afterwards(full_plane: ControlPlane) -> None:
    before = canaries(full_plane)
    for _ in range(3):  # it waits 5 s for an answer: a busy machine may take longer once, not every time
        (check,) = [each for each in doctor(full_plane, "--canary").checks if each["name"] == "evictor"]
        if check["status"] == "ok":
            break
    assert (check["status"], check["message"]) == ("ok", "the in-tree evictor is active, as the policy says")
    wait_until(lambda: canaries(full_plane) <= before, "it is gone")


def canaries(plane: ControlPlane) -> set[str]:
    """The names of those that are there, whosever they are."""
    rules = plane.client.get(path("resource.k8s.io/v1", "devicetaintrules")).items
    return {name for each in rules if "canary" in (name := each["metadata"]["name"])}


@pytest.mark.whole
def test_without_the_in_tree_evictor_the_policy_has_to_say_so(stage: Stage) -> None:
    found = doctor(stage.plane, "--canary")
    assert found.amiss == {"evictor": "warn the in-tree evictor is absent, but the policy says active"}
