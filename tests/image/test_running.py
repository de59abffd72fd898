"""The image at work for each processor, without any rights; another processor than this machine's is emulated."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.chroot import TEMPORARY, Mount, chrooted
from tests.controlplane.pki import Authority
from tests.controlplane.processes import Process, free_port
from tests.image.building import OURS
from webhook.commands.verbs import VERBS

if TYPE_CHECKING:
    from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.slow

# Neither root nor the image's own user.
_SOMEBODY: Final = "12345:54321"


def _without_rights(root: Path, mounted: Path, *arguments: str, mounts: tuple[Mount, ...] = ()) -> list[str]:
    """A command that runs the image's program as some user, with a folder where a volume would be.

    HOME is what container runtimes set for a user that has no entry.
    """
    return chrooted(
        root,
        "device-taint-webhook",
        *arguments,
        environment={"HOME": "/", "PATH": f"/{OURS}/bin:/usr/bin"},
        mounts=[Mount(mounted, "/mnt", read_only=True), *mounts],
        user=_SOMEBODY,
    )


def test_any_user_can_run_it_on_a_root_that_is_read_only(root: Path, tmp_path: Path) -> None:
    authority = Authority("image-ca")
    for file in authority.server("127.0.0.1").write(tmp_path):
        file.chmod(0o444)
    tmp_path.chmod(0o555)
    review_port, health_port = free_port(), free_port()
    flags = f"--bind-address=127.0.0.1 --port={review_port} --metrics-bind-address=0".split()
    health = f"--health-probe-bind-address=127.0.0.1:{health_port}"
    process = Process(
        "image",
        _without_rights(root, tmp_path, "serve", "--standalone", "--cert-dir=/mnt", health, *flags),
        tmp_path.parent / "image.log",
        grace_seconds=180,
    )

    def ready() -> bool:
        try:
            return _get(health_port)
        except OSError:
            return False

    try:
        process.wait_ready(ready, seconds=300)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": _rule_review()}
        answer = _post(review_port, authority.pem, review)
        assert answer["response"]["uid"] == "1"
        assert answer["response"]["allowed"] is True
    finally:
        code = process.stop()
    assert code == 0


def _get(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
    connection.close()
    return status == 200


def _post(port: int, ca_pem: bytes, body: object) -> dict[str, dict[str, object]]:
    context = ssl.create_default_context(cadata=ca_pem.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    connection.request("POST", "/validate", json.dumps(body), {"Content-Type": "application/json"})
    answer: dict[str, dict[str, object]] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def _rule_review() -> dict[str, object]:
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "a.example.com/b", "effect": "None"},
        },
    }
    return {
        "uid": "1",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceTaintRule"},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "devicetaintrules"},
        "operation": "CREATE",
        "name": "r",
        "userInfo": {"username": "somebody"},
        "object": rule,
    }


def test_programs_and_libraries_are_for_its_processor(root: Path) -> None:
    """By the machine number in the header of each ELF file in our part, as the base's Python has it."""
    numbers = set()
    for path in ((root / "usr/bin/python3.13"), *(root / OURS).rglob("*.so")):
        with path.open("rb") as file:
            header = file.read(20)
        assert header.startswith(b"\x7fELF")
        numbers.add(header[18:20])
    assert len(numbers) == 1, "a wheel for another processor"


_ARGUMENTS: Final = {
    "audit": ("--kubeconfig=/mnt/kubeconfig",),
    "check": ("/mnt/rule.yaml",),
    "completion": ("bash",),
    "doctor": ("--kubeconfig=/mnt/kubeconfig",),
    "explain": ("DT001",),
    "export-vap": ("--policy=/mnt/policy.yaml",),
    "preview": ("/mnt/rule.yaml", "--kubeconfig=/mnt/kubeconfig"),
    "schema": ("policy",),
    "status": ("--kubeconfig=/mnt/kubeconfig",),
    "test": ("/mnt/suite.yaml",),
}
"""What a verb is called with; any other one tells its flags. `serve` is above, and unit tests call all of them."""
_RULE: Final = """
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: r}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: a.example.com/b, effect: None}}
"""
_POLICY: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
default: deny
rules:
- {name: a, action: allow, match: {tolerations: {keys: [a.example.com/b]}}}
"""


def _with_its_files(kubeconfig: Path) -> str:
    """The kubeconfig with the content of files in place of their paths, which the image does not have."""
    config = json.loads(kubeconfig.read_text())
    for part in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
        for name in [key for key in part if key.startswith(("certificate", "client"))]:
            part[f"{name}-data"] = base64.b64encode(Path(part.pop(name)).read_bytes()).decode()
    return json.dumps(config)


_SUITE: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicyTest
metadata: {name: s}
policy: policy.yaml
defaults: {requester: {username: mila}}
cases:
- name: a claim without tolerations
  object:
    apiVersion: resource.k8s.io/v1
    kind: ResourceClaim
    metadata: {name: c, namespace: default}
    spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
  expect: {decision: allowed}
"""


@pytest.mark.apiserver
@pytest.mark.whole
def test_every_verb_works_without_the_generated_clients(files: Path, plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(_with_its_files(plane.kubeconfig_of("admin", ["system:masters"])))
    (tmp_path / "rule.yaml").write_text(_RULE)
    (tmp_path / "policy.yaml").write_text(_POLICY)
    (tmp_path / "suite.yaml").write_text(_SUITE)
    tmp_path.chmod(0o755)
    for verb in VERBS:
        arguments = _ARGUMENTS.get(verb, ("--help",))
        command = _without_rights(files, tmp_path, verb, *arguments, mounts=(TEMPORARY,))  # for certificates
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        # Nothing is installed there, which `doctor` finds.
        assert done.returncode == (1 if verb == "doctor" else 0), done
        assert done.stdout
        assert "Traceback" not in done.stderr
