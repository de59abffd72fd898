"""Whatever a policy document is, loading it ends, soon, in a policy or in errors at paths."""

from __future__ import annotations

import copy
import json
from functools import cache
from itertools import product
from pathlib import Path as File
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW
from tests.costs import calls_of
from tests.properties.strategies import FLAGS, any_json, lists, nearly, objects
from tests.unit.policy.documents import make_document, make_entry
from webhook.api.field import Path
from webhook.api.taints import DeviceToleration
from webhook.files.yaml_documents import yaml_documents
from webhook.policy.decide import Judge
from webhook.policy.document import Loaded, load
from webhook.policy.lint import expiring
from webhook.policy.match import NamespaceFacts, Requester, Scope, Target
from webhook.policy.model import NAMESPACE_NAME_LABEL
from webhook.policy.schema import MAX_ERRORS, MAX_VALUES, schema

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

AT = Path.root().child("data").key("policy.yaml")
SAMPLES = sorted((File(__file__).parents[2] / "manifests" / "policies").glob("*/policy.yaml"))
EFFECTS = ["None", "NoSchedule", "NoExecute"]


@cache
def sample(number: int) -> Any:
    (document,) = yaml_documents(SAMPLES[number].read_text())
    return document.value


def load_twice(document: Any) -> Loaded:
    """What load says, after checking all that holds of every answer."""
    before = copy.deepcopy(document)
    loaded = load(document, AT)
    assert document == before
    assert (loaded.policy is None) == bool(loaded.errors)
    assert len(loaded.errors) <= MAX_ERRORS
    assert all(str(error).startswith("data[policy.yaml]") for error in loaded.errors)
    assert all(len(str(error)) < 4096 for error in loaded.errors)
    if loaded.policy is not None:
        list(expiring(loaded.policy, NOW, AT))
        again = load(json.loads(json.dumps(document)), AT)
        assert again == loaded
        Judge(loaded.policy)
    return loaded


# --- any, and nearly right ----------------------------------------------------------------------

names = nearly("a", "b", "default", "no-such", "A", "")
patterns = lists(nearly("*", "a", "a*", "?", "**********", ""))
times = nearly("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "soon")
durations = nearly("10m", "0s", "99999h", "1h30m", "1d")
whens = nearly("true", "request.count > 1", "namespace.labels.a == 'b'", "((((", "x")
matches = objects(
    namespaces=objects(
        names=patterns,
        labels=st.dictionaries(nearly("a", "kubernetes.io/metadata.name", "a b").map(str), nearly("x", "")),
        matchExpressions=lists(objects(key=nearly("a"), operator=nearly("In", "Exists"), values=patterns)),
        **{"except": patterns},
    ),
    requesters=objects(users=patterns, groups=patterns, serviceAccounts=lists(nearly("a/b", "*/*", "a"))),
    deviceClasses=patterns,
    drivers=patterns,
    tolerations=objects(
        keys=patterns,
        values=patterns,
        effects=lists(nearly(*EFFECTS)),
        seconds=objects(above=nearly(1), atMost=nearly(1)),
    ),
    adminAccess=nearly(*FLAGS),
    pools=patterns,
    taints=objects(keys=patterns, effects=lists(nearly(*EFFECTS))),
    evict=nearly(*FLAGS),
    when=whens,
)
actions = nearly("allow", "deny", "warn", "audit")
entries = objects(name=names, action=actions, subject=nearly("request"), match=matches, message=nearly("m"))
documents = objects(
    mode=nearly("enforce", "off"),
    generatedClaims=nearly("enforce", "off"),
    default=nearly("allow", "deny"),
    trustedNamespaceLabels=lists(nearly("a")),
    rules=lists(entries),
    taintRules=lists(entries),
    exceptions=lists(objects(name=names, rules=lists(names), match=matches, expiresAt=times, notBefore=times)),
    defaultTolerations=lists(
        objects(name=names, match=matches, tolerations=lists(objects(key=nearly("a"), operator=nearly("Exists"))))
    ),
    impact=objects(limits=lists(objects(pods=nearly(1, "5%", "x"), taints=objects(keys=patterns))), window=durations),
    eviction=lists(objects(rate=nearly(1, 0, 0.5), deadline=durations, perOwnerUnavailable=nearly(1, "5%", "0%"))),
)


@given(any_json)
def test_any_json_gets_a_verdict(document: Any) -> None:
    load_twice(document)


@given(st.dictionaries(st.sampled_from([*schema()["properties"], "x"]), any_json))
def test_any_fields_get_a_verdict(fields: Any) -> None:
    load_twice(make_document(**fields))


@given(documents)
def test_nearly_right_documents_get_a_verdict(document: Any) -> None:
    load_twice(make_document(**document))


@given(st.integers(0, len(SAMPLES) - 1), st.data())
def test_spoilt_samples_get_a_verdict(number: int, data: Any) -> None:
    """One value anywhere in a sample is replaced."""
    document = copy.deepcopy(sample(number))
    place, steps = document, 0
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        steps += 1
        if isinstance(place[key], dict | list) and place[key] and (steps < 2 or data.draw(st.booleans())):
            place = place[key]
            continue
        place[key] = data.draw(st.one_of(any_json, st.just("*" * 20), st.just("a" * 2000)))
        break
    load_twice(document)


@given(st.sampled_from(["rules", "taintRules", "exceptions", "defaultTolerations", "eviction"]), any_json)
def test_long_documents_are_judged_by_no_more_than_a_glance_at_each_value(name: str, entry: Any) -> None:
    document = make_document(**{name: [entry] * 10_000})
    assert load(document, AT).policy is None
    assert calls_of(lambda each: load(each, AT), lambda: document) <= 5 * MAX_VALUES


# --- what lint says holds -----------------------------------------------------------------------

few: SearchStrategy[Any] = st.lists(st.sampled_from(["a", "b", "*"]), max_size=2)
right_matches = st.fixed_dictionaries(
    {},
    optional={
        "namespaces": st.fixed_dictionaries(
            {},
            optional={"names": few, "except": st.just(["a"]), "labels": st.just({NAMESPACE_NAME_LABEL: "a"})},
        ),
        "requesters": st.fixed_dictionaries({}, optional={"users": few, "groups": few}),
        "deviceClasses": few,
        "drivers": few,
        "tolerations": st.fixed_dictionaries(
            {}, optional={"keys": few, "values": few, "effects": st.lists(st.sampled_from(EFFECTS), max_size=2)}
        ),
        "adminAccess": st.booleans(),
    },
)
actions_that_decide = st.sampled_from(["allow", "deny", "deny", "warn"])


@st.composite
def right_rules(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """A few rules, of which each is often the one before with a field more, or another."""
    rules = [(draw(actions_that_decide), draw(right_matches))]
    for _ in range(draw(st.integers(1, 2))):
        match = draw(right_matches)
        if draw(st.booleans()):
            extra = draw(st.sampled_from([*match, None]))
            match = {**rules[-1][1], **({} if extra is None else {extra: match[extra]})}
        rules.append((draw(actions_that_decide), match))
    return rules


ASKED = list(
    product(
        [
            Scope(requester, namespace, facts)
            for requester in (None, Requester("a"), Requester("c", ("b",)), Requester("c", (), groups_known=False))
            for namespace in ("a", "b")
            for facts in (None, NamespaceFacts(namespace, {NAMESPACE_NAME_LABEL: namespace}))
        ],
        [
            Target(name, drivers, admin)
            for name in ("a", "c")
            for drivers in (None, frozenset("a"), frozenset("ac"))
            for admin in FLAGS
        ],
        [
            DeviceToleration(key, operator, "" if operator == "Exists" else "a", effect, seconds)
            for key in ("", "a", "c")
            for operator in ("Exists", "Equal")
            for effect in ("", "NoSchedule", "NoExecute")
            for seconds in (None, 1, 3)
        ],
    )
)


def with_seconds(action: str, match: Any, seconds: int) -> Any:
    """The match, with seconds where that is allowed."""
    held = match.get("tolerations", {})
    if not held or ("NoExecute" not in held.get("effects", ["NoExecute"])):
        return match
    return {**match, "tolerations": {**held, "seconds": {"atMost" if action == "allow" else "above": seconds}}}


@given(right_rules(), st.lists(st.integers(0, 3), min_size=3, max_size=3), st.integers(0, 2**32))
def test_rules_that_are_told_to_be_unreachable_are(rules: Any, seconds: list[int], seed: int) -> None:
    entries = [
        make_entry(f"r{number}", action, with_seconds(action, match, seconds[number]))
        for number, (action, match) in enumerate(rules)
    ]
    loaded = load(make_document(rules=entries), AT)
    assert loaded.policy is not None
    told = {str(finding.error.path) for finding in loaded.warnings if finding.code == "DT101"}
    unreachable = {f"r{number}" for number in range(len(rules)) if str(AT.child("rules").index(number)) in told}
    judge = Judge(loaded.policy)
    for scope, target, toleration in Random(seed).sample(ASKED, 500 if unreachable else 0):
        hits = judge.on_toleration(scope, target, toleration, NOW, dict)
        assert unreachable.isdisjoint(hit.rule.name for hit in hits)
