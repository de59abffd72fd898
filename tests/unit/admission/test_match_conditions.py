"""Whom the shipped registrations keep from us, and what the code would have said: the two must agree.

Every object of the corpus is created, and changed into others of its kind and version, with and without being deleted.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from celpy.adapter import json_to_cel
from msgspec import structs

from tests.builders import kind_of, make_admission_request, make_context, make_patch, make_rule
from tests.cases.corpus import cases
from tests.match_conditions import asked, entries, holds, with_meta
from tests.tables import table
from tests.unit.admission.guarding import fleet
from tests.unit.inventory.values import inventory_of
from webhook.admission.chain import mutate, validate
from webhook.admission.config_maps import CONFIG_MAPS
from webhook.admission.decision import ALLOWED
from webhook.admission.review import AdmissionRequest
from webhook.api.decode import Reader
from webhook.api.patches import decode_patch
from webhook.api.taints import DeviceToleration
from webhook.commands.shared.policy_files import read_policy
from webhook.eviction.conditions import CANARY, CANARY_DRIVER
from webhook.inventory.state import Sight
from webhook.patches.slice_patches import SlicePatches
from webhook.policy.model import Action, DefaultTolerations, ImpactLimits, ImpactSettings, Policy, Rule, UnknownAuthor
from webhook.policy.vap.export import export
from webhook.validation.kinds import BY_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.match_conditions import Json
    from webhook.admission.decision import Decision
    from webhook.api.meta import GroupVersionKind

REGISTERED: Final = {resource for entry in entries() for resource in entry.resources}
STRICT: Final[dict[str, Any]] = {
    "default": Action.DENY,
    "taint_rules": (Rule("no-taint", Action.DENY),),
    "taint_rules_on_slices": True,
    "bump_slice_time_added": True,
    "unknown_author": UnknownAuthor.DENY,
    "impact": ImpactSettings(limits=(ImpactLimits(pods=0, devices=0),)),
}
"""A policy that has something to say about everything that it sees."""
GENEROUS: Final[dict[str, Any]] = {
    "default_tolerations": (DefaultTolerations("all", (DeviceToleration("example.com/soon", "Exists", "", "", None),)),)
}
SIGHT: Final = Sight(inventory_of(*fleet()))
PATCH: Final = make_patch(filter_={}, attributes={"example.com/set": {"bool": True}})
BASE: Final = tuple(
    each for each in entries() if not each.name.startswith(("default-tolerations.", "slice-attributes."))
)
CONTEXTS: Final = (
    (BASE, make_context(sight=SIGHT, **STRICT)),
    (
        entries(),
        structs.replace(
            make_context(sight=SIGHT, **GENEROUS),
            slice_patches=SlicePatches.of([decode_patch(Reader.of(PATCH, []))], {}),
        ),
    ),
)
"""Which entries are registered, and what is judged by."""
FEW: Final = 3
STRIDE: Final = 12
FIELD_ERROR: Final = 422

ANNOTATIONS: Final[tuple[tuple[Json | None, Json | None], ...]] = (
    (None, None),
    (None, {"devicetaint.io/evict": "true"}),
    ({"devicetaint.io/evict": "true"}, None),
    ({"devicetaint.io/evict": "false"}, {"devicetaint.io/evict": "true"}),
    ({"example.com/a": "b"}, {"example.com/a": "b", "devicetaint.io/evict": "true"}),
    ({"devicetaint.io/evict": "true"}, {"devicetaint.io/evict": "true", "devicetaint.io/confirm-impact": "v1.made-up"}),
    ({"devicetaint.io/confirm-impact": "v1.a"}, {"devicetaint.io/confirm-impact": "v1.b"}),
    (None, {"devicetaint.io/evictions-per-second": "100000"}),
    (None, {"devicetaint.io/evictions-per-second": "-1"}),
    (None, {"devicetaint.io/mistyped": "x"}),
    ({"devicetaint.io/defaulted-tolerations": "{}"}, None),
    (None, {"devicetaint.io/originals": "{}"}),
)
"""Before and after."""


def _distinct() -> dict[GroupVersionKind, list[Json]]:
    """The corpus' objects by kind and version, those of registered resources that an API server could send."""
    found: dict[GroupVersionKind, dict[str, Json]] = {}
    for case in cases():
        for each in (case.object, case.old):
            if each is None or case.sub_resource or BY_KIND.get(kind_of(each)) not in REGISTERED or not _fits(each):
                continue
            seen = json.dumps([each.get("spec"), _annotations(each)], sort_keys=True)
            found.setdefault(kind_of(each), {}).setdefault(seen, _with_operators(each))
    return {kind: list(objects.values()) for kind, objects in found.items()}


def _with_operators(value: Any) -> Any:
    """The object with the operators that every API server fills in before it asks anybody."""
    if isinstance(value, dict):
        filled = {name: _with_operators(each) for name, each in value.items()}
        if isinstance(filled.get("tolerations"), list):
            filled["tolerations"] = [_with_operator(each) for each in filled["tolerations"]]
        return filled
    return [_with_operators(each) for each in value] if isinstance(value, list) else value


def _with_operator(toleration: Any) -> Any:
    if toleration is None:
        toleration = {}
    given = toleration.get("operator") if isinstance(toleration, dict) else "unknown"
    return toleration if given else {**toleration, "operator": "Equal"}


def _fits(value: Json) -> bool:
    """Whether its numbers have at most 64 bits."""
    try:
        json_to_cel(value)
    except ValueError:
        return False
    return True


def _annotations(value: Json) -> Any:
    meta = value.get("metadata")
    return meta.get("annotations") if isinstance(meta, dict) else None


CORPUS: Final = _distinct()
every_kind = pytest.mark.parametrize("kind", CORPUS, ids=str)


def stored(value: Json, annotations: Any = None, *, going: bool = False) -> Json:
    """The object with metadata such as a stored one has; `going` while it is being deleted."""
    fields: Json = {"name": "x", "uid": "u", "resourceVersion": "1", "annotations": annotations}
    if "namespace" in value.get("metadata", {}):
        fields["namespace"] = "ml"
    if going:
        fields |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/wait"]}
    return with_meta({**value, "metadata": {}}, **fields)


def unheard(changes: Iterable[tuple[Json, Json | None]]) -> Iterator[str]:
    """What the code would say or do about each (new, old) that no entry sends to it."""
    for new, old in changes:
        resource = BY_KIND[kind_of(new)]
        for path, judge in (("/validate", validate), ("/mutate", mutate)):
            for among, context in CONTEXTS:
                decision = judge(make_admission_request(new, old), context)
                if decision == ALLOWED or _left_to_the_server(path, new, old, decision):
                    continue
                if not asked(among, path, resource, new, old):
                    texts = [str(finding.error) for finding in decision.findings]
                    yield f"{path}: {old} -> {new}: {texts} {decision.patch}"


def _left_to_the_server(path: str, new: Json, old: Json | None, decision: Decision) -> bool:
    """Whether it is by choice that nothing is asked: nothing is tolerated or tainted, or the spec is immutable.

    Field errors are the API server's own then. Nothing else may be refused, and nothing set.
    """
    immutable = path == "/validate" and old is not None and new["kind"] in {"ResourceClaim", "ResourceClaimTemplate"}
    without = new["kind"] in {"ResourceClaim", "ResourceSlice"} and not _has_content(new.get("spec"))
    return (immutable or without) and not decision.patch and (decision.allowed or decision.code == FIELD_ERROR)


def _has_content(value: Any) -> bool:
    """Whether there is a taint or a toleration anywhere within."""
    if isinstance(value, dict):
        return any((name in {"taints", "tolerations"} and each) or _has_content(each) for name, each in value.items())
    return isinstance(value, list) and any(_has_content(each) for each in value)


def test_no_other_object_waits_for_us() -> None:
    """Pods, nodes, leases and whatever else there is go on while nobody listens."""
    assert {(each.group, each.resource) for each in REGISTERED} == {
        ("", "configmaps"),
        ("devicetaint.io", "resourceslicepatches"),
        *(("resource.k8s.io", each) for each in ("devicetaintrules", "resourceslices")),
        *(("resource.k8s.io", each) for each in ("resourceclaims", "resourceclaimtemplates")),
    }


@pytest.mark.untraced
@every_kind
def test_what_the_code_would_judge_is_sent_to_it_when_it_is_created(kind: GroupVersionKind) -> None:
    assert list(unheard((stored(each), None) for each in CORPUS[kind])) == []


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("every", [STRIDE, pytest.param(1, marks=pytest.mark.whole)], ids=["a few", "all"])
@pytest.mark.parametrize("going", [False, True], ids=["living", "being deleted"])
def test_r1_what_the_code_would_judge_is_sent_to_it_when_annotations_change(
    kind: GroupVersionKind, every: int, *, going: bool
) -> None:
    changes = (
        (stored(each, after, going=going), stored(each, before, going=going))
        for each in CORPUS[kind][::every]
        for before, after in ANNOTATIONS
    )
    assert list(unheard(changes)) == []


@pytest.mark.untraced
@every_kind
@pytest.mark.parametrize(
    "others", [FEW, pytest.param(None, marks=[pytest.mark.slow, pytest.mark.whole])], ids=["a few", "all"]
)
def test_what_the_code_would_judge_is_sent_to_it_when_a_spec_changes_during_deletion(
    kind: GroupVersionKind, others: int | None
) -> None:
    objects = [stored(each, going=True) for each in CORPUS[kind]]
    changes = (
        (new, old)
        for position, old in enumerate(objects)
        for new in [*objects, *objects][position + 1 : position + (others or len(objects))]
    )
    assert list(unheard(changes)) == []


@every_kind
@table(
    "before, after",
    {
        "a label": ({}, {"labels": {"a": "b"}}),
        "the last finalizer": ({}, {"finalizers": None}),
        "applied": ({}, {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}),
        "annotations of others": ({"annotations": {"example.com/a": "b"}}, {"annotations": None}),
        "the last finalizer of a rule that evicts": (
            {"annotations": {"devicetaint.io/evict": "true"}},
            {"annotations": {"devicetaint.io/evict": "true"}, "finalizers": None},
        ),
        "annotations of others beside ours": (
            {"annotations": {"devicetaint.io/evict": "true", "example.com/a": "b"}},
            {"annotations": {"example.com/a": "c", "devicetaint.io/evict": "true"}},
        ),
    },
)
def test_clean_up_is_sent_to_nobody(kind: GroupVersionKind, before: Json, after: Json) -> None:
    value = stored(CORPUS[kind][0], going=True)
    new, old = with_meta(value, **{**before, **after}), with_meta(value, **before)
    paths = ("/validate", "/mutate")
    assert [name for path in paths for name in asked(entries(), path, BY_KIND[kind], new, old)] == []


EVICT: Final = "system:serviceaccount:device-taint-webhook:device-taint-webhook-evict"


@pytest.mark.parametrize(
    ("user", "sent"),
    [
        (EVICT, []),
        ("kubernetes-admin", ["rules"]),
        ("system:serviceaccount:team-a:device-taint-webhook-evict", ["rules"]),
        ("system:serviceaccount:device-taint-webhook:device-taint-webhook", ["rules"]),
        (f"oidc:{EVICT}", ["rules"]),
        ("", ["rules"]),
    ],
)
def test_canary_is_kept_from_us_for_the_account_of_the_worker_alone(user: str, sent: list[str]) -> None:
    """Anyone else who may write rules could otherwise store one that no policy has seen."""
    spec = {"deviceSelector": {"driver": CANARY_DRIVER}, "taint": {"key": f"{CANARY_DRIVER}/canary", "effect": "None"}}
    canary = {**make_rule(), "metadata": {"name": f"{CANARY}-x"}, "spec": spec}
    for path in ("/validate", "/mutate"):
        names = asked(BASE, path, BY_KIND[kind_of(canary)], canary, None, user)
        assert [name.partition(".")[0] for name in names] == sent


def test_no_other_condition_goes_by_the_account() -> None:
    named = [(each.name, text.count(EVICT)) for each in entries() for text in each.conditions if "userInfo" in text]
    assert sorted(named) == [("rules.mutate.devicetaint.io", 1), ("rules.validate.devicetaint.io", 1)]


@pytest.mark.parametrize(("before", "after"), ANNOTATIONS)
@pytest.mark.parametrize("going", [False, True], ids=["living", "being deleted"])
@pytest.mark.parametrize("spec", [make_rule()["spec"], make_rule(selector={})["spec"]], ids=["as it was", "wider"])
def test_r1_the_fallback_and_the_webhook_are_asked_about_the_same_changes_of_a_rule(
    before: Json | None, after: Json | None, *, going: bool, spec: Json
) -> None:
    new = {**stored(make_rule(), after, going=going), "spec": spec}
    old = stored(make_rule(), before, going=going)
    made = export(Policy(**STRICT))
    conditions = {
        each["metadata"]["name"]: [condition["expression"] for condition in each["spec"]["matchConditions"]]
        for each in made.objects
        if each["kind"] == "ValidatingAdmissionPolicy" and "devicetaintrules" in json.dumps(each["spec"])
    }
    sent = bool(asked(BASE, "/validate", BY_KIND[kind_of(new)], new, old))
    assert {name: all(holds(each, new, old) for each in given) for name, given in conditions.items()} == {
        "device-taint-webhook-guard": sent,
        "device-taint-webhook-taints": sent,
    }


GOOD: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
DATA: Final[tuple[Json, ...]] = (
    {},
    {"data": {"policy.yaml": GOOD}},
    {"data": {"policy.yaml": "mode: strict"}},
    {"data": {"policy.yaml": GOOD, "candidate.yaml": "mode: strict"}},
    {"data": {"other": "x"}},
    {"data": {"policy.yaml": GOOD}, "binaryData": {"candidate.yaml": "eA=="}},
    {"binaryData": {"policy.yaml": "eA=="}},
)


@pytest.mark.parametrize("going", [False, True], ids=["living", "being deleted"])
@pytest.mark.parametrize(("after", "before"), [*itertools.product(DATA, DATA)])
def test_every_change_of_the_policy_that_the_code_would_judge_is_sent_to_it(
    after: Json, before: Json, *, going: bool
) -> None:
    """A ConfigMap kept by a finalizer is in use until it is gone."""
    new, old = (_policy(each, going=going) for each in (after, before))
    decision = validate(
        AdmissionRequest("uid", "UPDATE", CONFIG_MAPS, object=new, old_object=old),
        make_context(read_policy=read_policy),
    )
    sent = asked(BASE, "/validate", CONFIG_MAPS, new, old)
    assert sent or decision == ALLOWED
    if going and after == before:
        assert sent == []


def test_another_config_map_of_the_namespace_is_not_sent() -> None:
    other = {**_policy(DATA[1]), "metadata": {"name": "kube-root-ca.crt", "namespace": "device-taint-webhook"}}
    assert asked(BASE, "/validate", CONFIG_MAPS, other, None) == []


def _policy(fields: Json, *, going: bool = False) -> Json:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", **fields}
    value = stored({**manifest, "metadata": {"namespace": "any"}}, going=going)
    return with_meta(value, name="device-taint-webhook-policy", namespace="device-taint-webhook")
