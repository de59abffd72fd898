"""Laws of the guard of patches: a patch is judged as the rules that say the same, set at once by the same account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import DRIVER, NOW, make_rule, make_taint
from tests.unit.admission.guarding import ask, over
from tests.unit.admission.patch_guarding import (
    CREATED_TEXT,
    FIRST,
    SECOND,
    ask_patch,
    cel,
    figures,
    known,
    patching,
    racks,
    standing,
)
from tests.unit.admission.test_written_rules import judged, owner
from tests.unit.inventory.values import claim, inventory_of, on
from tests.unit.patches.indexed import drained
from tests.unit.patches.patched import slice_of
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta, format_time
from webhook.api.patches import decode_patch
from webhook.api.rules import PATCH_LABEL, DeviceTaintRule, decode_rule
from webhook.inventory.pools import selects
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.targets import DeviceId, DeviceNames
from webhook.patches.filters import SharedSelectors
from webhook.patches.index import PatchIndex
from webhook.patches.patch_reach import KnownPatches, patch_reach
from webhook.patches.status import standing_of
from webhook.policy.model import ImpactLimits, ImpactSettings, NamespaceMatch, Share, TaintMatch

if TYPE_CHECKING:
    from datetime import datetime

    from hypothesis.strategies import SearchStrategy

    from webhook.inventory.state import Inventory

CLUSTER: Final = racks(4, lambda number: f"ns-{number % 2}")
KEYS: Final = ("a.example.com/x", "b.example.com/y")
filters: SearchStrategy[Any] = st.sampled_from(
    [
        None,
        {},
        {"driver": DRIVER},
        {"driver": DRIVER, "pool": "node-0"},
        {"device": "gpu-0"},
        {"driver": DRIVER, "pool": "node-1", "device": "gpu-1"},
        {"driver": "nobody.example.com"},
        {"deviceClassName": "all"},
        {"deviceClassName": "second", "pool": "node-2"},
        cel(FIRST),
        cel(SECOND),
        cel(f'{FIRST} || device.driver == "x"', pool="node-3"),
        cel("true"),
        cel("false"),
    ]
)
taints: SearchStrategy[Any] = st.builds(
    lambda key, value, effect: make_taint(key=key, value=value, effect=effect, time_added=format_time(NOW)),
    st.sampled_from(KEYS),
    st.sampled_from([None, "v"]),
    st.sampled_from(["None", "NoSchedule", "NoExecute"]),
)
lists: SearchStrategy[list[Any]] = st.lists(taints, min_size=1, max_size=3)
limits: SearchStrategy[ImpactSettings] = st.builds(
    lambda entries, protected, key: ImpactSettings(
        limits=(structs.replace(entries[0], taints=TaintMatch(keys=(key,))), entries[1]),
        protected_namespaces=NamespaceMatch(names=(protected,)),
    ),
    st.tuples(
        *[
            st.builds(
                ImpactLimits,
                pods=st.integers(0, 5) | st.none(),
                claims=st.integers(0, 5) | st.none(),
                devices=st.integers(0, 9) | st.none() | st.sampled_from([Share(50), Share(100)]),
                namespaces=st.integers(0, 2) | st.none(),
            )
        ]
        * 2
    ),
    st.sampled_from(["ns-1", "other"]),
    st.sampled_from([*KEYS, "*"]),
)
others: SearchStrategy[list[Any]] = st.lists(
    st.builds(lambda chosen, given, priority: (chosen, given, priority), filters, lists, st.integers(-1, 1)),
    max_size=2,
)
CLASSES: Final = {"all": (), "second": (SECOND,)}


def world(stored: list[Any]) -> KnownPatches:
    patches = [
        patching(chosen, *given, name=f"other-{number}", uid=f"u-{number}", created=CREATED_TEXT, priority=priority)
        for number, (chosen, given, priority) in enumerate(stored)
    ]
    return known(patches, CLASSES)


def equivalent(
    patch: Any, patches: KnownPatches, judged: datetime | None = None, cluster: Inventory = CLUSTER
) -> tuple[DeviceTaintRule, ...]:
    """The rules that say what the patch says; if `judged`, also where it is hidden by patches that do less."""
    stored = cluster.rules.values()
    return patch_reach(decode_patch(Reader.of(patch, [])), patches, CLUSTER.pools, judged=judged, stored=stored).rules


def as_manifest(rule: DeviceTaintRule, **meta: Any) -> Any:
    selector = rule.selector
    assert selector is not None
    names = {"driver": selector.driver, "pool": selector.pool, "device": selector.device}
    taint = make_taint(
        key=rule.taint.key, value=rule.taint.value or None, effect=rule.taint.effect, time_added=format_time(NOW)
    )
    fields = {"name": rule.meta.name, "annotations": dict(rule.meta.annotations), **meta}
    return make_rule(selector={name: text for name, text in names.items() if text}, taint=taint, meta=fields)


@given(filters, lists, others, limits)
def test_patch_is_judged_as_the_rules_that_say_the_same(
    chosen: Any, given_taints: list[Any], stored: list[Any], impact: ImpactSettings
) -> None:
    patch, patches = patching(chosen, *given_taints), world(stored)
    cluster = standing(CLUSTER, patches)
    decision = ask_patch(patch, cluster=cluster, patches=patches, impact=impact)
    rules = [rule for rule in equivalent(patch, patches, NOW, cluster) if rule.effective_effect in EFFECT_RANK]
    alone = [ask(as_manifest(rule), cluster=cluster, impact=ImpactSettings(limits=(NO_LIMITS,))) for rule in rules]
    refused = False
    for at, rule in enumerate(rules):
        # Each as the last of them: the others were set a moment ago.
        beside = rules[:at] + rules[at + 1 :]
        victims = tuple(
            each.assumed.impact for number, each in enumerate(alone) if number != at and each.assumed is not None
        )
        judged_alone = ask(
            as_manifest(rule),
            cluster=cluster,
            impact=impact,
            assumed=tuple(beside),
            victims=victims,
            patches=patches,
            closed=tuple([DeviceNames.of(each.selector) for each in beside]),
        )
        refused = refused or not judged_alone.allowed
    assert decision.allowed is not refused


NO_LIMITS: Final = ImpactLimits(pods=None, namespaces=None)


@given(filters, lists, others)
def test_rules_of_an_admitted_patch_pass_and_no_others_do(
    chosen: Any, given_taints: list[Any], stored: list[Any]
) -> None:
    """Each with the marks of the controller; the same rule for a device more is refused.

    Not if the patch names no driver, class or selector, as then it is for drivers that are yet to come as well.
    """
    for_all_drivers = not chosen or chosen.keys() <= {"pool", "device"}
    patch, before = patching(chosen, *given_taints, uid="uid-of-patch", created=CREATED_TEXT), world(stored)
    patches = KnownPatches({**before.patches, "firmware": decode_patch(Reader.of(patch, []))}, before.classes)
    marks = {"labels": {PATCH_LABEL: "uid-of-patch"}, "ownerReferences": [owner()]}
    for rule in equivalent(patch, patches):
        decision = judged(as_manifest(rule, **marks), cluster=CLUSTER, patches=patches)
        assert decision.allowed, [str(each) for each in decision.findings]
        assert decision.assumed is None
        if rule.selector is not None and rule.selector.driver is not None and not for_all_drivers:
            wide = structs.replace(rule, selector=structs.replace(rule.selector, driver="another.example.com"))
            assert not judged(as_manifest(wide, **marks), cluster=CLUSTER, patches=patches).allowed


devices: SearchStrategy[set[tuple[int, int]]] = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 1)))


@given(
    filters.filter(lambda chosen: bool(chosen) and not {"deviceClassName", "selectors"}.isdisjoint(chosen)),
    devices,
    devices,
    devices,
    st.integers(0, 4),
)
def test_no_rule_for_a_filter_with_a_class_or_cel_reaches_a_device_in_use_that_it_does_not_select(
    chosen: Any, published: set[tuple[int, int]], used: set[tuple[int, int]], gone: set[tuple[int, int]], ceiling: int
) -> None:
    """Before and after drivers take devices back, whatever the controller's ceiling is."""
    claims = [claim(f"c-{pool}-{place}", on(f"gpu-{place}", pool=f"node-{pool}"), users=["u"]) for pool, place in used]
    patch = decode_patch(Reader.of(patching(chosen, make_taint(), uid="uid-of-patch", created=CREATED_TEXT), []))
    patches = KnownPatches({"firmware": patch}, known([], CLASSES).classes)
    marks = {"labels": {PATCH_LABEL: "uid-of-patch"}, "ownerReferences": [owner()]}
    for shown in (published, published - gone):
        places = [(pool, [place for of, place in sorted(shown) if of == pool]) for pool in range(3)]
        slices = [
            slice_of(*[{"name": f"gpu-{n}", "attributes": {"place": {"int": n}}} for n in own], pool=f"node-{pool}")
            for pool, own in places
        ]
        cluster, index = inventory_of(*slices, *claims), PatchIndex(SharedSelectors())
        for name, value in patches.classes.items():
            index.apply_class(name, value)
        for each in slices:
            index.apply_slice(None, each)
        index.apply_patch("firmware", patch)
        drained(index)
        reach = patch_reach(patch, patches, cluster.pools)
        assert reach.won is not None
        won = {each for found in reach.won.values() for each in found}
        for rule in standing_of(index, "firmware", ceiling).rules:
            stored = DeviceTaintRule(ObjectMeta(rule.name), rule.selector, rule.taint)
            if judged(as_manifest(stored, **marks), cluster=cluster, patches=patches).allowed:
                in_use = {DeviceId(DRIVER, f"node-{pool}", f"gpu-{place}") for pool, place in used}
                assert {each for each in in_use if selects(rule.selector, *each)} <= won


@given(filters, filters, lists, others, limits)
def test_update_is_refused_only_for_what_a_creation_would_be(
    new: Any, old: Any, given_taints: list[Any], stored: list[Any], impact: ImpactSettings
) -> None:
    after, before, patches = patching(new, *given_taints), patching(old, *given_taints), world(stored)
    created = ask_patch(
        {**after, "metadata": {**after["metadata"], "creationTimestamp": CREATED_TEXT}},
        cluster=CLUSTER,
        patches=patches,
        impact=impact,
    )
    updated = ask_patch(after, before, cluster=CLUSTER, patches=patches, impact=impact)
    if created.allowed:
        assert updated.allowed
    if new == old:
        assert (updated.allowed, over(updated)) == (True, [])


@given(filters, lists, others)
def test_rules_that_come_of_a_patch_change_no_sum(chosen: Any, given_taints: list[Any], stored: list[Any]) -> None:
    """What a later patch is told of the window is the same whether the rules are there yet or not."""
    patch, patches = patching(chosen, *given_taints), world(stored)
    first = ask_patch(patch, cluster=CLUSTER, patches=patches, impact=ImpactSettings(limits=(NO_LIMITS,)))
    if first.assumed is None:
        return
    later = patching(
        {"driver": DRIVER}, make_taint(key="z.example.com/z", effect="NoExecute", time_added=None), name="z"
    )
    shared: dict[str, Any] = {
        "patches": patches,
        "impact": ImpactSettings(limits=(ImpactLimits(pods=3, devices=7),)),
        "victims": (first.assumed.impact,),
        "closed": first.assumed.names,
    }
    yet_to_come = ask_patch(later, cluster=CLUSTER, assumed=first.assumed.rules, **shared)
    full = racks(4, lambda number: f"ns-{number % 2}")
    for rule in first.assumed.rules:
        full.apply(None, decode_rule(Reader.of(as_manifest(rule), [])))
    there = ask_patch(later, cluster=full, **shared)
    assert over(there) == over(yet_to_come)
    assert figures(there) == figures(yet_to_come)
