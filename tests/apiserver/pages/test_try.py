"""manifests/README.md, "Try it", followed; and whom the policy in manifests/try warns."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tests.apiserver.objects import claim_of
from tests.apiserver.pages.fleet import DRIVER, RULES, example_driver
from tests.apiserver.pages.following import Reader, blocks, section
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

PAGE: Final = "manifests/README.md"
HEADING: Final = "Try it"
NAMESPACE: Final = "device-taint-try"
PODS: Final = path("v1", "pods", namespace=NAMESPACE)
_SOON_SECONDS: Final = 240


def _running(reader: Reader) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in reader.client.get(PODS).items)


def _claim(namespace: str) -> str:
    toleration = {
        "key": "maint.example.com/firmware",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 600,
    }
    return yaml.safe_dump(claim_of(DRIVER, toleration, name="patient", namespace=namespace))


def test_five_commands_lead_to_a_rule_that_is_refused_with_what_it_would_hit(reader: Reader) -> None:
    """And in the namespace of the pods, the policy beside them allows what it warns of elsewhere."""
    (commands,) = blocks(PAGE, HEADING)
    make, install, rollout, pods, rule = commands.splitlines()
    (answer,) = re.findall(r"`(hits [^`]+)`", " ".join(section(PAGE, HEADING).split()))
    with example_driver(reader):
        reader.run(f"{make}\n{install}")
        with reader.pod_of_serve():
            reader.run(rollout)
            reader.run(pods)
            wait_until(lambda: _running(reader) == 2, "the pods run", seconds=_SOON_SECONDS)
            wait_until(lambda: answer in reader.run(rule, codes={1}), "it is refused", seconds=_SOON_SECONDS)
            assert (reader.client.get(RULES).items, _running(reader)) == ([], 2)

            reader.run("kubectl apply -f manifests/try/policy.yaml")
            reader.write("elsewhere.yaml", _claim("default"))
            reader.write("here.yaml", _claim(NAMESPACE))
            wait_until(
                lambda: "no rule allows" in reader.run("kubectl apply --dry-run=server -f elsewhere.yaml"),
                "the policy is in use",
                seconds=_SOON_SECONDS,
            )
            assert "Warning" not in reader.run("kubectl apply --dry-run=server -f here.yaml")
        reader.run("kubectl delete -f manifests/try/pods.yaml --ignore-not-found")
