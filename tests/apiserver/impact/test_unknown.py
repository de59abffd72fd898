"""While nobody can know what a rule would hit, the answer is "not known": after the start, and without an API server.

The last of this folder, since the API server goes away.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.apiserver.impact.fleet import GPU, OTHER
from tests.apiserver.impact.population import Population
from tests.apiserver.objects import rule_for
from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS, RestartablePlane, Stage, answered
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from tests.controlplane.webhook_process import WebhookProcess

Json = dict[str, Any]

LOST_SECONDS: Final = 60.0
"""An inventory that is not followed counts as unknown after a quarter of this."""
BACK_SECONDS: Final = 120.0
CLAIMS: Final = "resourceclaims"
UNKNOWN: Final = "its impact is not known: "
KNOWN: Final = "selects 1 device"


def _rule(population: Population, effect: str) -> Json:
    """It hits one pod at most."""
    alpha = population.benches["alpha"]
    selector = {"driver": alpha.driver(GPU), "pool": alpha.pool(0), "device": alpha.device(GPU, 0)}
    return rule_for(selector, {"key": OTHER, "effect": effect, "timeAdded": None}, name="unknown")


def _answer(stage: Stage, webhook: WebhookProcess, rule: Json) -> tuple[bool, str]:
    """Whether a replica allows it, and all that it says."""
    asked = copy.copy(stage)
    asked.webhook = webhook
    response = asked.ask(rule)
    status = response.get("status", {}).get("message", "")
    return response["allowed"], "\n".join([status, *response.get("warnings", ())])


@pytest.fixture
def guarded(installed: Stage, population: Population) -> Stage:
    """With the built-in policy, which refuses what is not known."""
    population.settle(*population.benches.values())
    installed.use_nothing()
    installed.wait_policy("builtin")
    return installed


def test_before_all_was_read_the_impact_is_unknown(guarded: Stage, population: Population) -> None:
    """A replica that may not read claims is ready, and says what it does not know; once it may, it does."""
    evicting, harmless = _rule(population, "NoExecute"), _rule(population, "None")
    role = path("rbac.authorization.k8s.io/v1", "clusterroles", name="device-taint-webhook")
    rules = guarded.client.get(role).object["rules"]
    without = [{**rule, "resources": [each for each in rule["resources"] if each != CLAIMS]} for rule in rules]
    assert without != rules
    _ = guarded.client.patch(role, {"rules": without}).object
    account = guarded.client.acting_as(ACCOUNT, ACCOUNT_GROUPS)
    wait_until(lambda: account.get(path(f"{GROUP}/v1", CLAIMS)).code == 403, "it may not read claims")
    try:
        with guarded.new_webhook() as late:
            assert UNKNOWN in _answer(guarded, late, evicting)[1]
            # The first that it does not know is what it names: others that it may read come first.
            unread = f"{CLAIMS} not read yet"
            wait_until(lambda: unread in _answer(guarded, late, evicting)[1], unread, seconds=BACK_SECONDS)
            allowed, text = _answer(guarded, late, evicting)
            assert (allowed, UNKNOWN in text, unread in text) == (False, True, True), text
            assert _answer(guarded, late, harmless)[0]
            _ = guarded.client.patch(role, {"rules": rules}).object
            wait_until(lambda: KNOWN in _answer(guarded, late, harmless)[1], "known", seconds=BACK_SECONDS)
            assert UNKNOWN not in _answer(guarded, late, evicting)[1]
    finally:
        _ = guarded.client.patch(role, {"rules": rules}).object


@pytest.mark.whole
def test_without_an_api_server_the_impact_is_unknown(
    impact_plane: RestartablePlane, guarded: Stage, population: Population
) -> None:
    """A replica that runs notices after a while; one that starts does not get ready, and nobody asks it."""
    evicting, harmless = _rule(population, "NoExecute"), _rule(population, "None")
    running = guarded.webhook
    # It might not read claims for a moment: a watch that ended then has to be begun again.
    wait_until(lambda: KNOWN in _answer(guarded, running, harmless)[1], "known", seconds=BACK_SECONDS)
    impact_plane.stop_api_server()
    try:
        late = guarded.launch_webhook()
        assert answered(late, "readyz")[0] == 503
        wait_until(lambda: UNKNOWN in _answer(guarded, running, evicting)[1], "it is noticed", seconds=LOST_SECONDS)
        assert not _answer(guarded, running, evicting)[0]
        assert _answer(guarded, running, harmless)[0]
        assert guarded.metric("inventory_synced") == {"": 0.0}
        assert guarded.metric("reflector_staleness_seconds")[f'resource="{CLAIMS}"'] > 1
        assert running.ready()  # claims are judged all the same
    finally:
        impact_plane.start_api_server()
    wait_until(late.ready, "a replica that waited for the API server", seconds=BACK_SECONDS)
    wait_until(lambda: KNOWN in _answer(guarded, late, harmless)[1], "known", seconds=BACK_SECONDS)
    wait_until(lambda: KNOWN in _answer(guarded, running, harmless)[1], "known again", seconds=BACK_SECONDS)
    assert guarded.metric("inventory_synced") == {"": 1.0}
    assert late.stop() == 0
