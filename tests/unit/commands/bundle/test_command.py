"""`bundle`: what is in the archive, what is not, and what it does without rights."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.builders import make_meta, make_pod, make_taint
from tests.unit.commands.api_server import ApiServer, bare, serving
from tests.unit.commands.preview_runner import HEADER, SLICES, used
from tests.unit.commands.status_runner import RULE
from webhook.commands.bundle import archive as archives
from webhook.commands.bundle import command as bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARK: Final = "MARKED7secret7MARKED"
GROUP: Final = "/apis/resource.k8s.io/v1"
OWN: Final = "/api/v1/namespaces/device-taint-webhook"
FOLDER: Final = "device-taint-webhook-bundle"
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"


def our_pod() -> Any:
    pod = make_pod("webhook-0", namespace="device-taint-webhook")
    ports = [{"name": "metrics", "containerPort": 8080}]
    env = [{"name": "HTTPS_PROXY", "value": f"http://u:{MARK}@p"}]
    pod["spec"]["containers"] = [{"name": "serve", "ports": ports, "env": env}]
    pod["metadata"]["annotations"] = {"example.com/secret": MARK}
    return pod


def world() -> ApiServer:
    """A cluster with a marked secret wherever one can be."""
    tables = ApiServer()
    rule = json.loads(json.dumps(RULE))
    rule["metadata"]["annotations"]["devicetaint.io/confirm-impact"] = f"v1.1.1.1.1.1.{MARK}"
    claim = used("train", "node-0/gpu-0", annotations={"devicetaint.io/requested-by": MARK})
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "d", "parameters": {"password": MARK}}}]
    idle = used("idle", "node-9/gpu-0")
    webhook = {"name": "rules.validate.devicetaint.io", "clientConfig": {"url": f"https://x/{MARK}", "caBundle": MARK}}
    event = {
        "metadata": make_meta("e", namespace="device-taint-webhook"),
        "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "message": f"Authorization: Bearer {MARK}",
    }
    tainted = json.loads(json.dumps(SLICES[0]))
    tainted["spec"]["devices"][0]["taints"] = [make_taint(effect="NoExecute")]
    tables.collections = {
        f"{CONFIGURATIONS}/validatingwebhookconfigurations": [
            {"metadata": make_meta("device-taint-webhook"), "webhooks": [webhook]},
            {"metadata": make_meta("other"), "webhooks": [{"name": f"{MARK}.example.com"}]},
        ],
        f"{CONFIGURATIONS}/mutatingwebhookconfigurations": [],
        "/apis/apps/v1/namespaces/device-taint-webhook/deployments": [{"metadata": make_meta("device-taint-webhook")}],
        "/apis/policy/v1/namespaces/device-taint-webhook/poddisruptionbudgets": [],
        f"{OWN}/pods": [bare(our_pod())],
        f"{OWN}/services": [],
        f"{OWN}/events": [event],
        f"{OWN}/secrets": [{"metadata": make_meta("key"), "data": {"key": MARK}}],
        "/api/v1/namespaces/default/events": [],
        f"{GROUP}/devicetaintrules": [bare(rule)],
        f"{GROUP}/resourceslices": [bare(tainted), bare(SLICES[1])],
        f"{GROUP}/resourceclaims": [bare(claim), bare(idle)],
    }
    served = [path.rpartition("/")[2] for path in tables.collections if path.startswith(f"{GROUP}/")]
    policy = f"# password: {MARK}\n{yaml.safe_dump(HEADER)}"
    tables.objects = {
        GROUP: {"resources": [{"name": name} for name in served]},
        "/version": {"gitVersion": "v1.37.0"},
        f"{OWN}/configmaps/device-taint-webhook-policy": {
            "metadata": make_meta("device-taint-webhook-policy"),
            "data": {"policy.yaml": policy, "other": MARK},
        },
        f"{OWN}/pods/webhook-0/log": {"msg": "started", "token": MARK, "pod": "ml/train"},
        f"{OWN}/pods/webhook-0%3A8080/proxy/metrics": {"device_taint_webhook_reviews_total": 7},
    }
    return tables


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.chdir(tmp_path)
    tables = world()
    with serving(tables, tmp_path):
        config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        config["users"][0]["user"]["token"] = MARK
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        yield tables


def made(folder: Path, *words: str, code: int = 0) -> dict[str, str]:
    """Runs bundle, and returns the files of the archive as text, by their names in it."""
    path = folder / "made.tar.gz"
    path.unlink(missing_ok=True)
    assert bundle.run(["--kubeconfig", "kubeconfig", "-o", str(path), "--no-doctor", *words]) == code
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
        return {
            member.name.removeprefix(f"{FOLDER}/"): (tar.extractfile(member) or io.BytesIO()).read().decode()
            for member in tar.getmembers()
        }


def test_archive_has_what_its_readme_lists_and_no_marked_secret(api_server: ApiServer, tmp_path: Path) -> None:
    files = made(tmp_path)
    assert sorted(files) == [
        "README.md",
        "devices/devicetaintrules.json",
        "devices/resourceclaims.json",
        "devices/resourceslicepatches.json",
        "devices/resourceslices.json",
        "errors.txt",
        "events.json",
        "logs/webhook-0/serve.log",
        "metrics/webhook-0.txt",
        "policy.json",
        "versions.json",
        "webhooks/mutatingwebhookconfigurations.json",
        "webhooks/validatingwebhookconfigurations.json",
        "workloads/deployments.json",
        "workloads/poddisruptionbudgets.json",
        "workloads/pods.json",
        "workloads/services.json",
    ]
    for name, content in files.items():
        assert MARK not in content, name
    assert files["errors.txt"] == "nothing: everything could be read\n"
    assert "started" in files["logs/webhook-0/serve.log"]
    assert "reviews_total" in files["metrics/webhook-0.txt"]
    assert not any("secrets" in target for target in api_server.asked), "no Secret may be asked for"
    assert api_server.sent == []


def test_only_tainted_devices_and_claims_on_them_are_in_it(api_server: ApiServer, tmp_path: Path) -> None:
    assert api_server.collections
    files = made(tmp_path)
    claims = json.loads(files["devices/resourceclaims.json"])["items"]
    slices = json.loads(files["devices/resourceslices.json"])["items"]
    assert [each["metadata"]["name"] for each in claims] == ["train"]
    assert [each["metadata"]["name"] for each in slices] == ["node-0-gpu"]


def test_same_cluster_makes_the_same_bytes(api_server: ApiServer, tmp_path: Path) -> None:
    assert api_server.collections
    made(tmp_path)
    first = (tmp_path / "made.tar.gz").read_bytes()
    made(tmp_path)
    assert (tmp_path / "made.tar.gz").read_bytes() == first
    assert stat.S_IMODE((tmp_path / "made.tar.gz").stat().st_mode) == 0o600


def test_names_are_replaced_alike_in_all_files_if_asked(api_server: ApiServer, tmp_path: Path) -> None:
    assert api_server.collections
    files = made(tmp_path, "--redact")
    everything = "\n".join(files.values())
    assert '"train"' not in everything
    assert "ml/train" not in everything
    assert "node-0" not in everything
    claim = json.loads(files["devices/resourceclaims.json"])["items"][0]
    assert claim["status"]["reservedFor"][0]["name"].startswith(("pod-", "claim-"))
    assert "device-taint-webhook" in files["workloads/deployments.json"]


def test_without_rights_the_rest_is_there_and_errors_are_listed(api_server: ApiServer, tmp_path: Path) -> None:
    for path in (f"{GROUP}/resourceclaims", f"{CONFIGURATIONS}/validatingwebhookconfigurations"):
        del api_server.collections[path]
        api_server.objects[path] = 403
    api_server.objects[f"{OWN}/pods/webhook-0/log"] = 403
    files = made(tmp_path, code=1)
    assert "devices/devicetaintrules.json" in files
    errors = files["errors.txt"]
    assert "resourceclaims: GET" in errors
    assert "validatingwebhookconfigurations: GET" in errors
    assert "the log of webhook-0/serve: GET" in errors


def test_files_that_are_too_large_keep_their_end(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FILE_MOST_BYTES", 1000)
    api_server.objects[f"{OWN}/pods/webhook-0/log"] = {"lines": "x" * 5000, "end": "last words"}
    files = made(tmp_path, code=1)
    assert len(files["logs/webhook-0/serve.log"]) == 1000
    assert files["logs/webhook-0/serve.log"].endswith('"last words"}')
    assert "logs/webhook-0/serve.log: cut from" in files["errors.txt"]


def test_no_file_is_overwritten(api_server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there.tar.gz").write_text("mine")
    assert bundle.run(["--kubeconfig", "kubeconfig", "-o", "there.tar.gz"]) == 2
    assert "there.tar.gz is there already" in capsys.readouterr().err
    assert (tmp_path / "there.tar.gz").read_text() == "mine"
    assert api_server.asked == []


def test_no_cluster_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundle.run(["--kubeconfig", "nowhere"]) == 2
    assert list(tmp_path.iterdir()) == []
