"""Namespaces that the registration leaves out: exported policies do not judge there either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.tables import table
from tests.unit.commands.runner import Ran
from tests.unit.commands.test_export_vap import WHOLE


@table(
    "words, left_out",
    {
        "as shipped": ([], ["device-taint-webhook", "kube-system"]),
        "more": (
            ["--exempt-namespaces=kube-system,infra,apps"],
            ["device-taint-webhook", "apps", "infra", "kube-system"],
        ),
        "others, and our own": (["-n", "mine", "--exempt-namespaces=mine,infra"], ["mine", "infra"]),
        "none but our own": (["--exempt-namespaces="], ["device-taint-webhook"]),
    },
)
def test_policies_about_claims_leave_out_the_same_namespaces_as_the_webhook(
    words: list[str], left_out: list[str], tmp_path: Path, ran: Ran
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(WHOLE))
    _, output, _ = ran("export-vap", str(policy), "-o", "json", *words)
    selectors: list[Any] = [
        each["spec"]["matchConstraints"]["namespaceSelector"]
        for each in json.loads(output)["items"]
        if "matchConstraints" in each["spec"]
    ]
    found = [each["matchExpressions"][0]["values"] for each in selectors if each]
    assert found
    assert all(values == left_out for values in found)
