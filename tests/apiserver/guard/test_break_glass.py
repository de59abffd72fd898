"""A member of a break-glass group passes the guard, and the cluster keeps a record of it."""

from __future__ import annotations

from typing import Any, Final

from tests.apiserver.guard.crowd import COUNT, make_rule
from tests.apiserver.objects import RULES
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.processes import wait_until

GROUP: Final = "on-call"
POLICY: Final = make_policy(impact={"breakGlassGroups": [GROUP]})
LINE: Final = "impact limits bypassed by a member of a break-glass group"


def test_break_glass_is_in_the_audit_log_the_webhooks_log_and_its_metrics(guarded: Stage) -> None:
    """R11, M2: in all three places, and only for who passed by it."""
    guarded.use(POLICY)
    rule = make_rule(None, "emergency")
    refused = guarded.client.acting_as("dana").create(RULES, rule)
    assert (refused.code, LINE in guarded.webhook.process.log.read_text()) == (403, False), refused
    passed = guarded.client.acting_as("olga", [GROUP, "system:authenticated"]).create(RULES, rule)
    assert passed.ok, passed

    annotations = guarded.audited("rules.validate.devicetaint.io", "create", f"{RULES}/emergency")
    assert annotations["impact"].endswith(" break-glass")
    assert f"pods={COUNT} " in annotations["impact"]

    def lines() -> list[dict[str, Any]]:
        return [each for each in guarded.webhook.logged() if LINE in each["msg"]]

    wait_until(lambda: bool(lines()), "the log line")
    (line,) = lines()
    assert (line["level"], line["user"], line["object"]) == ("warning", "olga", "emergency")
    counted = guarded.metric("findings_total")
    assert counted['rule="break-glass",severity="warn"'] == 1
