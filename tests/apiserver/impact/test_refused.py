"""Rules that are refused for what they would hit, by the policy that there is without one, on two hundred pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.apiserver.impact.fleet import MAINT, OTHER
from tests.apiserver.impact.population import RULES, Population
from tests.apiserver.impact.witness import Witness
from tests.apiserver.objects import rule_for
from tests.apiserver.policy.stage import Stage
from tests.controlplane import versions
from tests.controlplane.client import Reply, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import FACTS
from webhook.admission.impact_text import on_missing_selector
from webhook.api.rules import CONFIRM_IMPACT

Json = dict[str, Any]

# Of the whole fleet, for a key that nobody names: test_evicted has the in-tree controller's own word for them.
DEVICES: Final = "224 devices"
PODS: Final = "192 pods in 12 namespaces"
VERSIONS: Final = versions.rule_versions(versions.DEFAULT)
_TEXT: Final = re.compile(rf'set annotation {re.escape(CONFIRM_IMPACT)} to "(v1 [^"]+)"')


@pytest.fixture
def guarded(installed: Stage, population: Population, witness: Witness) -> Iterator[Stage]:
    """With the built-in policy; nothing that a test sends may evict anybody, or stay."""
    population.settle(*population.benches.values())
    before = len(witness.evictions())
    installed.use_nothing()
    installed.wait_policy("builtin")
    # Its watches may be behind what the API server has.
    wait_until(lambda: PODS in installed.refusal(_rule({}, "NoExecute")), f"the webhook knows of {PODS}")
    yield installed
    for rule in population.client.get(RULES).items:
        population.client.delete(f"{RULES}/{rule['metadata']['name']}")
    assert len(witness.evictions()) == before


def _rule(selector: Json | None, effect: str, version: str = "v1", key: str = OTHER, **metadata: Any) -> Json:
    given = {"name": "accident", **metadata}
    return rule_for(selector, {"key": key, "effect": effect}, version=version, **given)


def _send(stage: Stage, rule: Mapping[str, Any], *, dry_run: bool = False) -> Reply:
    return stage.client.create(path(rule["apiVersion"], "devicetaintrules"), rule, dry_run=dry_run)


def _text(reply: Reply) -> str:
    match = _TEXT.search(reply.message)
    assert match, reply.message
    return match[1]


# --- an empty selector --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
@pytest.mark.parametrize("selector", [{}, {"all": True}], ids=["empty", "all"])
def test_an_empty_selector_is_refused(guarded: Stage, version: str, effect: str, selector: Json) -> None:
    """`all: true` is what a later release may have; this one passes over it, and reads an empty selector."""
    reply = _send(guarded, _rule(selector, effect, version))
    assert (reply.code, reply.reason) == (403, "Forbidden"), reply
    assert f"spec.deviceSelector: Forbidden: hits {DEVICES}" in reply.message
    assert "an empty selector is every device of every driver" in reply.message
    assert (PODS in reply.message) is (effect == "NoExecute")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_selector_without_effect_is_admitted_and_told(guarded: Stage, version: str) -> None:
    reply = _send(guarded, _rule({}, "None", version))
    assert reply.code == 201, reply
    told = [f"with effect NoExecute selects {DEVICES}", f"evicts {PODS}"]
    assert [warning for warning in reply.warnings if all(text in warning for text in told)], reply.warnings


def test_an_empty_selector_cannot_be_given_an_effect_later(guarded: Stage) -> None:
    assert _send(guarded, _rule({}, "None")).ok
    for effect in ("NoSchedule", "NoExecute"):
        reply = guarded.client.patch(f"{RULES}/accident", {"spec": {"taint": {"effect": effect}}})
        assert reply.code == 403, reply
    narrow = {"spec": {"deviceSelector": {"pool": "nowhere"}, "taint": {"effect": "NoExecute"}}}
    assert guarded.client.patch(f"{RULES}/accident", narrow).ok
    reply = guarded.client.patch(f"{RULES}/accident", {"spec": {"deviceSelector": {"pool": None}}})
    assert reply.code == 403, reply


def test_a_text_confirms_this_impact_and_no_other(guarded: Stage) -> None:
    """Sent as dry runs: what is confirmed would evict."""
    text = {CONFIRM_IMPACT: _text(_send(guarded, _rule({}, "NoExecute")))}
    assert _send(guarded, _rule({}, "NoExecute", annotations=text), dry_run=True).code == 201
    assert _send(guarded, _rule({}, "NoExecute", "v1alpha3", annotations=text), dry_run=True).code == 201
    for other in (
        _rule({}, "NoSchedule", annotations=text),
        _rule({}, "NoExecute", key=MAINT, annotations=text),
        _rule({}, "NoExecute", annotations=text, name="another"),
        _rule(None, "NoExecute", annotations=text),
    ):
        reply = _send(guarded, other, dry_run=True)
        assert reply.code == 403, reply
        assert "was printed for another object: name, selector" in reply.message


# --- a missing selector -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_a_missing_selector_is_refused_in_the_words_of_this_release(guarded: Stage, version: str, effect: str) -> None:
    reply = _send(guarded, _rule(None, effect, version))
    assert (reply.code, reply.reason) == (403, "Forbidden"), reply
    assert f"a rule without selector {on_missing_selector(FACTS)}" in reply.message


# --- names that are not there yet, and objects that go ------------------------------------------------


def test_a_name_yet_to_be_made_is_told_as_such(guarded: Stage) -> None:
    rule = _rule({}, "NoExecute")
    rule["metadata"] = {"generateName": "accident-"}
    reply = _send(guarded, rule)
    assert reply.code == 403, reply
    rule["metadata"]["annotations"] = {CONFIRM_IMPACT: _text(reply)}
    assert _send(guarded, rule, dry_run=True).code == 201


def test_rules_are_deleted_without_a_word(guarded: Stage) -> None:
    rule = _rule({"driver": "gpu.alpha.example.com"}, "None")
    rule["metadata"] = {"generateName": "accident-"}
    name = _send(guarded, rule).object["metadata"]["name"]
    reply = guarded.client.delete(f"{RULES}/{name}")
    assert (reply.code, reply.warnings) == (200, ())
