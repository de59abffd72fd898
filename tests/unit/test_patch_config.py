"""The flags of `patch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.config.settings import ConfigError
from webhook.config.workers import parse_patch
from webhook.patches.covering import RULES_MAX


def test_without_flags_it_leads_and_keeps_to_the_documented_limits() -> None:
    settings = parse_patch("x", [], {})
    assert (settings.rules_per_patch, settings.lease) == (RULES_MAX, None)
    assert (settings.requests_per_second, settings.request_burst) == (50.0, 100)
    assert settings.health_address is not None
    assert settings.metrics_address is not None
    assert (settings.health_address.port, settings.metrics_address.port) == (8081, 8080)
    assert not settings.verbose
    assert not settings.slice_attributes
    assert parse_patch("x", ["--slice-attributes"], {}).slice_attributes


def test_lease_is_our_own_unless_it_is_named() -> None:
    assert parse_patch("x", ["--leader-elect", "--namespace=n"], {}).lease == ("n", "device-taint-webhook-patch")
    assert parse_patch("x", ["--leader-elect", "--leader-elect-lease=a/b"], {}).lease == ("a", "b")
    assert parse_patch("x", [], {"DEVICE_TAINT_WEBHOOK_LEADER_ELECT": "true", "POD_NAMESPACE": "p"}).lease == (
        "p",
        "device-taint-webhook-patch",
    )


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        pytest.param(["--rules-per-patch=0"], "--rules-per-patch: Invalid value", id="no rule at all"),
        pytest.param(["--rules-per-patch=x"], "--rules-per-patch: Invalid value", id="no number"),
        pytest.param(["--leader-elect-lease=a/b"], "--leader-elect: Required value", id="lease without election"),
        pytest.param(
            ["--policy-file=a", "--policy-configmap=n/c"],
            "--policy-file: Invalid value.*together with --policy-configmap",
            id="two policies",
        ),
    ],
)
def test_flags_that_cannot_be_used(flags: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        parse_patch("x", flags, {})


def test_one_rule_is_a_ceiling() -> None:
    assert parse_patch("x", ["--rules-per-patch", "1"], {}).rules_per_patch == 1


def test_policy_is_that_of_the_installation_unless_it_is_named() -> None:
    def policy(*flags: str) -> tuple[object, object]:
        settings = parse_patch("x", list(flags), {"POD_NAMESPACE": "p"})
        return settings.policy_file, settings.policy_config_map

    assert policy() == (None, ("p", "device-taint-webhook-policy"))
    assert policy("--policy-configmap=n/c") == (None, ("n", "c"))
    assert policy("--policy-file=a.yaml") == (Path("a.yaml"), None)
