"""Any namespace (H2): where a process looks for its own objects unless it is given their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from webhook.certificates.settings import SelfManagedSettings
from webhook.commands.doctor import command as doctor
from webhook.commands.shared.main import main_of
from webhook.config.serve import parse_serve
from webhook.config.settings import ConfigError
from webhook.config.texts import own_namespace
from webhook.config.workers import parse_evict

USUAL: Final = "device-taint-webhook"
GIVEN: Final = {"DEVICE_TAINT_WEBHOOK_NAMESPACE": "given"}
POD: Final = {"POD_NAMESPACE": "pod"}
SELF_MANAGED: Final = ("--self-managed-certificates",)


@pytest.fixture
def account_file(tmp_path: Path) -> Path:
    """As a kubelet mounts it."""
    file = tmp_path / "namespace"
    file.write_text("account")
    return file


@pytest.mark.parametrize(
    ("environment", "namespace"),
    [
        ({**POD, **GIVEN}, "given"),
        (POD, "pod"),
        ({**POD, "DEVICE_TAINT_WEBHOOK_NAMESPACE": ""}, "pod"),
        ({}, "account"),
        ({"POD_NAMESPACE": ""}, "account"),
    ],
)
def test_the_first_that_says_something_decides(
    environment: Mapping[str, str], namespace: str, account_file: Path
) -> None:
    assert own_namespace(environment, account_file) == namespace


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_file_that_says_nothing_leaves_the_namespace_of_the_manifests(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "namespace"
    if content is not None:
        file.write_bytes(content)
    assert own_namespace({}, file) == USUAL
    assert own_namespace({}, tmp_path) == USUAL, "a folder"


def test_the_environment_of_the_process_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_NAMESPACE", "here")
    assert own_namespace() == "here"


@pytest.mark.parametrize(
    ("arguments", "environment", "namespace"),
    [((), POD, "pod"), ((), {**POD, **GIVEN}, "given"), (("--namespace=flag",), {**POD, **GIVEN}, "flag")],
)
def test_serve_looks_for_all_of_its_objects_in_its_namespace(
    arguments: tuple[str, ...], environment: Mapping[str, str], namespace: str
) -> None:
    settings = parse_serve("x", [*SELF_MANAGED, *arguments], environment)
    assert settings.policy_config_map == (namespace, "device-taint-webhook-policy")
    certificates = settings.certificates
    assert isinstance(certificates, SelfManagedSettings)
    assert certificates.secret == (namespace, "device-taint-webhook-ca")
    assert certificates.validating_configuration == certificates.mutating_configuration == USUAL
    assert certificates.names == (
        f"{USUAL}.{namespace}.svc",
        f"{USUAL}.{namespace}.svc.cluster.local",
        f"{USUAL}.{namespace}",
        USUAL,
    )


@pytest.mark.parametrize("mode", ["observe", "delegated"])
def test_evict_looks_for_all_of_its_objects_in_its_namespace(mode: str) -> None:
    settings = parse_evict("x", [f"--mode={mode}", "--leader-elect"], POD)
    assert settings.policy_config_map == ("pod", "device-taint-webhook-policy")
    assert settings.lease == ("pod", "device-taint-webhook-evict")


def test_an_object_that_a_flag_names_stays_where_it_is() -> None:
    flags = ("--policy-configmap=a/b", "--service=e/f", "--ca-secret=g/h")
    settings = parse_serve("x", [*SELF_MANAGED, *flags], POD)
    assert settings.policy_config_map == ("a", "b")
    certificates = settings.certificates
    assert isinstance(certificates, SelfManagedSettings)
    assert (certificates.secret, certificates.names[0]) == (("g", "h"), "f.e.svc")


def test_what_cannot_be_a_namespace_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"--namespace: Invalid value: .* must be the name of a namespace"):
        parse_serve("x", [*SELF_MANAGED, "--namespace=a/b"], {})
    with pytest.raises(ConfigError, match="DEVICE_TAINT_WEBHOOK_NAMESPACE: Invalid value"):
        parse_evict("x", [], {"DEVICE_TAINT_WEBHOOK_NAMESPACE": "A"})
    assert main_of(doctor, ["-n", "a/b"]) == 2
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_NAMESPACE", "A")
    assert main_of(doctor, []) == 2
    assert capsys.readouterr().err.count("must be the name of a namespace") == 2
