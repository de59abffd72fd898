"""What runs beside the webhook: it passes over the same namespaces, and may read what it needs."""

from __future__ import annotations

from typing import Final

import pytest

from tests.apiserver.chart.helming import Helm, Json
from webhook.commands import audit
from webhook.config.workers import parse_evict

_JUDGING: Final[Json] = {"evict": {"enabled": True}, "openReports": {"enabled": True}}


@pytest.mark.parametrize("exempt", [["kube-system"], ["kube-system", "infra"], ["infra"], []])
def test_both_audits_leave_out_what_the_registration_does(exempt: list[str], helm: Helm) -> None:
    objects = helm.template({**_JUDGING, "exemptNamespaces": exempt}, namespace="mine")
    [registration] = [each for each in objects if each["kind"] == "ValidatingWebhookConfiguration"]
    [claims] = [each for each in registration["webhooks"] if each["name"].startswith("claims.")]
    [left_out] = [each["values"] for each in claims["namespaceSelector"]["matchExpressions"]]
    [worker] = [
        each["spec"]["template"]["spec"]["containers"][0]["args"]
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["name"].endswith("-evict")
    ]
    [job] = [each for each in objects if each["kind"] == "CronJob"]
    verb, *words = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"][0]["args"]
    assert verb == "audit"
    assert list(parse_evict("evict", worker[1:], {"POD_NAMESPACE": "mine"}).exempt_namespaces) == left_out
    words = [each.replace("$(POD_NAMESPACE)", "mine") for each in words]  # as the kubelet does
    assert list(audit.command_line().parse_args(words).exempt_namespaces) == left_out


def test_account_of_the_chart_test_may_read_what_tells_of_a_lost_policy(helm: Helm) -> None:
    objects = helm.template({}, namespace="mine")
    [role] = [each for each in objects if each["kind"] == "Role" and each["metadata"]["name"].endswith("-doctor")]
    rights = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert {("events", "list"), ("leases", "get"), ("configmaps", "get")} <= rights
    assert role["metadata"]["namespace"] == "mine"
