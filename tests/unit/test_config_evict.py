"""Flags of `evict`: defaults, the environment, and what makes no sense together."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.api.meta import NamespacedName
from webhook.config.serve import parse_serve
from webhook.config.settings import ConfigError
from webhook.config.workers import EvictSettings, parse_evict
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.ports import WorkerSettings


def parsed(*arguments: str, **environment: str) -> EvictSettings:
    return parse_evict("program", arguments, environment)


def test_default_touches_nothing_and_needs_no_lease() -> None:
    settings = parsed()
    assert settings.worker == WorkerSettings(mode=Mode.OBSERVE)
    assert settings.lease is None
    assert settings.policy_config_map == NamespacedName("device-taint-webhook", "device-taint-webhook-policy")
    assert (settings.requests_per_second, settings.request_burst) == (100, 200)


def test_flags_and_environment_are_read() -> None:
    settings = parsed(
        "--mode=replacement",
        "--in-tree=absent",
        "--leader-elect",
        "--kube-api-qps=0",
        "--concurrent-evictions=5",
        "--policy-file=p.yaml",
        DEVICE_TAINT_WEBHOOK_DELETE_EXPIRED="true",
        DEVICE_TAINT_WEBHOOK_MODE="observe",
    )
    expected = WorkerSettings(mode=Mode.REPLACEMENT, in_tree=InTree.ABSENT, delete_expired=True, workers=5)
    assert settings.worker == expected
    assert settings.lease == NamespacedName("device-taint-webhook", "device-taint-webhook-evict")
    assert (settings.policy_file, settings.policy_config_map) == (Path("p.yaml"), None)
    assert settings.requests_per_second == 0


def test_last_of_two_values_holds_as_overlays_add_flags_to_those_of_a_deployment() -> None:
    assert parsed("--mode=observe", "--mode=delegated").worker.mode is Mode.DELEGATED
    serving = parse_serve("program", ["--cert-dir=c", "--port=1", "--port", "2"], {})
    assert serving.address.port == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--mode=evict"],
            '--mode: Unsupported value: "evict": supported values: "delegated", "observe", "replacement"',
        ),
        (["--mode=replacement", "--in-tree=active"], "--mode: Invalid value: "),
        (["--in-tree=unknown"], "--in-tree: Unsupported value: "),
        (["--leader-elect-lease=a/b"], "--leader-elect: Required value: must come with --leader-elect-lease"),
        (["--policy-file=a", "--policy-configmap=a/b"], "--policy-file: Invalid value: "),
        (["--kube-api-qps=many"], "--kube-api-qps: Invalid value: "),
        (["--concurrent-evictions=0"], "--concurrent-evictions: Invalid value: 0: must be between 1 and 10000"),
        (["--nonsense"], "unknown flag --nonsense"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(*arguments)
    assert str(caught.value).startswith(expected)


def test_variables_that_nothing_reads_are_found() -> None:
    """L18: flags of serve among them."""
    unknown = parsed(DEVICE_TAINT_WEBHOOK_MODES="observe", DEVICE_TAINT_WEBHOOK_TLS_MIN_VERSION="x").unknown_variables
    assert unknown == {
        "DEVICE_TAINT_WEBHOOK_MODES": "DEVICE_TAINT_WEBHOOK_MODE",
        "DEVICE_TAINT_WEBHOOK_TLS_MIN_VERSION": "",
    }
