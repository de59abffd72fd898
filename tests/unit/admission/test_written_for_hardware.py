"""Rules of the patch controller for the rest of the hardware that another rule is about, and marks of its rules."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, NOW_TEXT, decoded, make_rule, make_taint
from tests.tables import table
from tests.unit.admission.guarding import allowing, ask, over, tainting, told
from tests.unit.admission.patch_guarding import CREATED_TEXT, evicting, known
from tests.unit.admission.softened import MARKS, OPERATOR, send, softening
from tests.unit.admission.test_written_rules import ACCOUNT, UID, faults, genuine, owner, stored_patch
from tests.unit.inventory.values import claim, inventory_of, on
from tests.unit.patches.patched import slice_of
from webhook.api.decode import Reader
from webhook.api.meta import format_time
from webhook.api.rules import (
    CONFIRM_IMPACT,
    EVICT,
    EVICTIONS_PER_SECOND,
    HARDWARE,
    HARDWARE_LABEL,
    NOT_BEFORE,
    PATCH_LABEL,
    SCOPE,
    SOFTENED_FROM,
    DeviceSelector,
    DeviceTaintRule,
    decode_rule,
)
from webhook.inventory.rule_delta import begins_to_evict
from webhook.inventory.targets import DeviceNames, rule_name
from webhook.policy.model import InTreeEvictor

if TYPE_CHECKING:
    from webhook.inventory.state import Inventory, InventoryObject

A_TEXT = "v1 devices=1 claims=1 pods=1 namespaces=1 of=aaaaaaaaaaaaaaaa"
NOT_ITS_HARDWARE = "spec.deviceSelector: DeviceTaintRule bad-card selects no device on the hardware of this one"
NO_DEVICE = "spec.deviceSelector: must name a driver, a pool and a device"
NO_RULE = "metadata.ownerReferences: there is no DeviceTaintRule bad-card with that UID"


def hardware_objects(**options: Any) -> list[InventoryObject]:
    """A card with two partitions and another device, a rule for the card, and pods on all of them."""
    card, other = (dict[str, Any](counterSet=name, counters={}) for name in ("card-0", "card-1"))
    devices = [
        {"name": "gpu-0", "consumesCounters": [card]},
        {"name": "mig-0", "consumesCounters": [card]},
        {"name": "mig-1", "consumesCounters": [card]},
        {"name": "gpu-1", "consumesCounters": [other]},
    ]
    meta = {"name": "bad-card", "uid": "uid-of-rule", "annotations": options.pop("annotations", {SCOPE: "hardware"})}
    fields = {"selector": {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}, "taint": evicting(), **options}
    rule = make_rule(meta={**meta, **fields.pop("meta", {})}, **fields)
    return [
        slice_of(*devices),
        *[claim(f"c-{name}", on(name), users=[f"u-{name}"]) for name in ("mig-0", "mig-1")],
        decode_rule(Reader.of(rule, [])),
    ]


def hardware(**options: Any) -> Inventory:
    return inventory_of(*hardware_objects(**options))


def sibling(device: str = "mig-0", taint: Any = None, **fields: Any) -> Any:
    selector = fields.pop("selector", {"driver": DRIVER, "pool": "node-0", "device": device})
    reference = owner("uid-of-rule", "bad-card", "DeviceTaintRule")
    given = {"name": "bad-card-1", "labels": {HARDWARE_LABEL: "uid-of-rule"}, "ownerReferences": [reference], **fields}
    return make_rule(selector=selector, taint=taint or evicting(), meta=given)


@pytest.mark.parametrize("device", ["mig-0", "mig-1", "gpu-0"])
def test_devices_of_the_same_hardware_are_admitted(device: str) -> None:
    assert faults(sibling(device), cluster=hardware()) == []


@table(
    "rule, cluster, fault",
    {
        "other hardware": (sibling("gpu-1"), hardware(), NOT_ITS_HARDWARE),
        "no such device": (sibling("mig-9"), hardware(), NOT_ITS_HARDWARE),
        "another pool": (
            sibling(),
            hardware(selector={"driver": DRIVER, "pool": "node-7", "device": "gpu-0"}),
            NOT_ITS_HARDWARE,
        ),
        "another driver": (
            sibling(),
            hardware(selector={"driver": "other.example.com", "device": "gpu-0"}),
            NOT_ITS_HARDWARE,
        ),
        "a whole pool": (sibling(selector={"driver": DRIVER, "pool": "node-0"}), hardware(), NO_DEVICE),
        "any pool": (sibling(selector={"driver": DRIVER, "device": "mig-0"}), hardware(), NO_DEVICE),
        "any driver": (sibling(selector={"pool": "node-0", "device": "mig-0"}), hardware(), NO_DEVICE),
        "an unknown field": (
            sibling(selector={"driver": DRIVER, "pool": "node-0", "device": "mig-0", "other": 1}),
            hardware(),
            NO_DEVICE,
        ),
        "no scope": (
            sibling(),
            hardware(annotations={}),
            f"metadata.ownerReferences: DeviceTaintRule bad-card has no annotation {SCOPE}: hardware",
        ),
        "no such rule": (sibling(), inventory_of(*hardware_objects()[:-1]), NO_RULE),
        "another UID": (sibling(), hardware(meta={"uid": "another"}), NO_RULE),
        "being deleted": (sibling(), hardware(meta={"deletionTimestamp": CREATED_TEXT}), NO_RULE),
        "no label": (sibling(labels={}), hardware(), f"metadata.labels[{HARDWARE_LABEL}]: must be the UID of the rule"),
        "another effect": (
            sibling(taint=make_taint(time_added=format_time(NOW))),
            hardware(),
            "spec.taint: must be that of DeviceTaintRule bad-card",
        ),
        "an earlier time": (
            sibling(taint=evicting(time_added="2026-06-01T11:00:00Z")),
            hardware(),
            "spec.taint.timeAdded: must not be before 2026-06-01T12:00:00Z, as DeviceTaintRule bad-card has it",
        ),
        "a scope of its own": (
            sibling(annotations={SCOPE: "hardware"}),
            hardware(),
            f"metadata.annotations[{SCOPE}]: must be as DeviceTaintRule bad-card has it, or as it was stored",
        ),
    },
)
def test_rule_for_other_hardware_is_refused(rule: Any, cluster: Inventory, fault: str) -> None:
    assert faults(rule, cluster=cluster) == [fault]


def test_siblings_are_not_emptied_before_their_rule() -> None:
    """The in-tree controller does not read the annotation; our worker does."""
    cluster = hardware(annotations={SCOPE: "hardware", NOT_BEFORE: "2027-01-01T00:00:00Z"})
    assert faults(sibling(), cluster=cluster) == []
    ours = {"cluster": cluster, "in_tree_evictor": InTreeEvictor.ABSENT}
    assert faults(sibling(), **ours) == [
        f"metadata.annotations[{NOT_BEFORE}]: must be as DeviceTaintRule bad-card has it, or as it was stored"
    ]
    assert faults(sibling(annotations={NOT_BEFORE: "2027-01-01T00:00:00Z"}), **ours) == []


def test_text_of_the_rule_is_none_for_its_siblings() -> None:
    cluster = hardware(annotations={SCOPE: "hardware", CONFIRM_IMPACT: A_TEXT})
    assert faults(sibling(), cluster=cluster) == []
    assert len(faults(sibling(annotations={CONFIRM_IMPACT: A_TEXT}), cluster=cluster)) == 1


def card_rule(*, scope: str | None = "hardware", effect: str = "NoExecute", **selector: str) -> Any:
    chosen = selector or {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    return tainting(chosen, effect, name="bad-card", annotations={} if scope is None else {SCOPE: scope})


def ask_card(rule: Any, old: Any = None, **options: Any) -> Any:
    bare = inventory_of(*[each for each in hardware_objects() if not isinstance(each, DeviceTaintRule)])
    return ask(rule, old, cluster=bare, **{"patch_account": ACCOUNT, **options})


def test_rule_for_all_of_the_hardware_counts_all_of_it() -> None:
    decision = ask_card(card_rule())
    assert decision.allowed
    assert told(decision) == [("warn", "selects 3 devices in 1 pool; evicts 2 pods in 1 namespace, all at once")]
    assert over(ask_card(card_rule(), impact=allowing(pods=1))) == ["limit:pods"]
    assert over(ask_card(card_rule(effect="NoSchedule"), impact=allowing(devices=2))) == ["limit:devices"]
    assert ask_card(card_rule(effect="NoSchedule"), impact=allowing(devices=3)).allowed
    closed = (DeviceNames(DRIVER, "node-0", "gpu-1"),)
    crowded = ask_card(card_rule(effect="NoSchedule"), impact=allowing(devices=3), closed=closed)
    assert over(crowded) == ["window:devices"]


def test_siblings_of_a_rule_that_asks_our_worker_only_close() -> None:
    rule = card_rule(effect="NoSchedule")
    rule["metadata"]["annotations"][EVICT] = "true"
    decision = ask_card(rule, impact=allowing(pods=0))
    assert decision.allowed
    assert decision.annotations["impact"].startswith("devices=3 ")
    assert " kept=2 " in decision.annotations["impact"]


def test_no_other_device_stays_in_service_then() -> None:
    assert "siblings=" not in ask_card(card_rule()).annotations["impact"]
    assert "siblings=2" in ask_card(card_rule(scope=None)).annotations["impact"]


def test_scope_without_a_controller_is_for_nothing() -> None:
    decision = ask_card(card_rule(), impact=allowing(pods=0), patch_account="")
    assert decision.allowed
    assert decision.annotations["impact"].startswith("devices=1 ")


def test_scope_of_a_rule_for_more_than_one_device_adds_nothing() -> None:
    assert ask_card(card_rule(driver=DRIVER)).annotations["impact"].startswith("devices=4 ")


def test_scope_that_is_added_is_judged() -> None:
    added = ask_card(card_rule(), card_rule(scope=None), impact=allowing(pods=1))
    assert over(added) == ["limit:pods"]
    assert ask_card(card_rule(), card_rule(), impact=allowing(pods=1)).allowed
    assert ask_card(card_rule(scope=None), card_rule(), impact=allowing(pods=1)).allowed
    assert ask_card(card_rule(effect="None"), card_rule(scope=None, effect="None"), impact=allowing(pods=1)).allowed


@pytest.mark.parametrize("written", [(), ("mig-0",), ("mig-0", "mig-1")], ids=len)
def test_siblings_without_rules_count_when_the_rule_is_narrowed(written: tuple[str, ...]) -> None:
    """There were too many for rules when it was admitted, and pods have come since."""
    old, new = card_rule(device="gpu-0"), card_rule(device="gpu-0", driver=DRIVER)
    for each in (old, new):
        each["metadata"] |= {"uid": "uid-of-rule", "resourceVersion": "7"}
    found = [decode_rule(Reader.of(sibling(device), [])) for device in written]
    names = [rule_name("bad-card", rule.taint, rule.selector or DeviceSelector()) for rule in found]
    rules = [
        structs.replace(rule, meta=structs.replace(rule.meta, name=name))
        for rule, name in zip(found, names, strict=True)
    ]
    cluster = inventory_of(*[each for each in hardware_objects() if not isinstance(each, DeviceTaintRule)], *rules)
    decision = ask(new, old, cluster=cluster, patch_account=ACCOUNT, impact=allowing(pods=0))
    assert over(decision) == ([] if len(written) == 2 else ["limit:pods"])
    assert ask(old, old, cluster=cluster, patch_account=ACCOUNT, impact=allowing(pods=0)).allowed
    sent = send(new, old, cluster=cluster, patch_account=ACCOUNT, impact=softening(pods=0))
    assert (sent.softened, sent.judged.allowed) == (len(written) < 2, True)
    soft = card_rule(device="gpu-0", effect="NoSchedule")
    soft["metadata"]["annotations"] |= MARKS
    again = send(new, soft, cluster=cluster, patch_account=ACCOUNT, impact=softening(pods=9))
    assert (again.softened, again.remark.rpartition("; ")[2]) == (True, "as before")


# --- owners that our worker evicts for ------------------------------------------------------------


SCOPED: Final = {SCOPE: "hardware"}


@pytest.mark.parametrize("evictor", InTreeEvictor)
@table(
    "effect, annotations",
    {
        "asked for": ("NoExecute", {EVICT: "true"}),
        "not asked for": ("NoExecute", {EVICT: "false"}),
        "softened before": ("NoExecute", MARKS),
        "softened": ("NoSchedule", MARKS),
    },
)
def test_siblings_carry_no_marks_of_an_owner_that_has_them(
    effect: str, annotations: dict[str, str], evictor: InTreeEvictor
) -> None:
    owned = {"cluster": hardware(annotations={**SCOPED, **annotations}, taint=evicting(effect=effect))}
    assert faults(sibling(taint=evicting(effect=effect)), **owned, in_tree_evictor=evictor) == []


@table(
    "annotations, mark",
    {"/evict": ({EVICT: "true"}, EVICT), "the mark of softening": ({EVICT: "false", **MARKS}, SOFTENED_FROM)},
)
def test_sibling_with_marks_is_refused_though_its_owner_has_them(annotations: dict[str, str], mark: str) -> None:
    cluster = hardware(annotations={**SCOPED, **annotations})
    found = faults(sibling(annotations=annotations), cluster=cluster)
    fault = f"metadata.annotations[{mark}]: must be as DeviceTaintRule bad-card has it, or as it was stored"
    assert fault in found


def test_rate_of_the_owner_must_still_be_that_of_its_siblings() -> None:
    rate = {EVICTIONS_PER_SECOND: "1"}
    ours = {
        "cluster": hardware(annotations={**SCOPED, **rate, EVICT: "true"}),
        "in_tree_evictor": InTreeEvictor.ABSENT,
    }
    assert faults(sibling(annotations=rate), **ours) == []
    assert len(faults(sibling(annotations={EVICTIONS_PER_SECOND: "100"}), **ours)) == 1


# --- owner references that are taken out ----------------------------------------------------------


COLLECTOR: Final = {"user": "system:serviceaccount:kube-system:generic-garbage-collector", "impact": allowing()}
DELETED: Final = {**stored_patch(), "metadata": {**stored_patch()["metadata"], "deletionTimestamp": CREATED_TEXT}}
OF_PATCH: Final = genuine()
OF_RULE: Final = genuine(kind="DeviceTaintRule", labels={HARDWARE_LABEL: UID})


def changed(rule: Any, **meta: Any) -> Any:
    new = deepcopy(rule)
    new["metadata"] |= meta
    return new


@table(
    "rule, options",
    {
        "of a patch that is being deleted": (OF_PATCH, {"patches": known([DELETED])}),
        "of a patch that is gone": (OF_PATCH, {"patches": known([])}),
        "of a rule that is being deleted": (OF_RULE, {"cluster": hardware(meta={"deletionTimestamp": CREATED_TEXT})}),
    },
)
def test_garbage_collector_may_take_out_the_owner_and_leave_the_label(rule: Any, options: Any) -> None:
    assert faults(changed(rule, ownerReferences=[]), rule, **COLLECTOR, **options) == []


@table(
    "meta",
    {
        "the label alone": {"labels": {}},
        "another owner": {"ownerReferences": [owner("other")]},
        "another label": {"ownerReferences": [], "labels": {PATCH_LABEL: "other"}},
        "a further label": {"ownerReferences": [], "labels": {PATCH_LABEL: UID, HARDWARE_LABEL: "other"}},
    },
)
def test_other_changes_of_the_marks_are_refused(meta: dict[str, Any]) -> None:
    (fault,) = faults(changed(OF_PATCH, **meta), OF_PATCH, **COLLECTOR)
    assert "the patch controller would not write this rule" in fault


def test_owner_that_was_taken_out_comes_back_only_as_the_controller_writes_it() -> None:
    orphan = changed(OF_PATCH, ownerReferences=[])
    assert faults(OF_PATCH, orphan, **COLLECTOR) == []
    assert len(faults(changed(orphan, ownerReferences=[owner("other")]), orphan, **COLLECTOR)) == 1


# --- a scope on a rule that evicts already --------------------------------------------------------


YESTERDAY: Final = NOW - timedelta(days=1)
WITH_SCOPE: Final = {SCOPE: HARDWARE}


def card(annotations: dict[str, str], effect: str = "NoExecute", added: datetime = YESTERDAY) -> Any:
    selector = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    taint = evicting(effect=effect, time_added=format_time(added))
    return make_rule(meta={"name": "bad-card", "uid": "u", "annotations": annotations}, selector=selector, taint=taint)


def sent(new: Any, old: Any, **options: Any) -> Any:
    return send(new, old, cluster=hardware(annotations={}), patch_account=ACCOUNT, **{"user": "admin", **options})


@table(
    "effect, annotations",
    {"in-tree": ("NoExecute", {}), "ours": ("NoSchedule", {EVICT: "true"}), "both": ("NoExecute", {EVICT: "true"})},
)
def test_siblings_get_all_of_their_graces(effect: str, annotations: dict[str, str]) -> None:
    both = sent(
        card({**annotations, **WITH_SCOPE}, effect), card(annotations, effect), impact=allowing(pods=50), user="admin"
    )
    assert (both.judged.errors, both.time) == ((), NOW_TEXT)


def test_scope_is_refused_where_the_time_stays_in_the_past() -> None:
    """As /mutate may not have answered, or the author gave another time of the past."""
    for added in (YESTERDAY, NOW - timedelta(hours=1)):
        new = card(WITH_SCOPE, added=added)
        asked = ask(new, card({}), cluster=hardware(annotations={}), impact=allowing(pods=50), patch_account=ACCOUNT)
        assert over(asked) == ["backdated"]


def test_softened_rule_that_gets_a_scope_is_softened_again_with_the_present_time() -> None:
    again = sent(card(WITH_SCOPE), card(MARKS, "NoSchedule"), impact=softening(pods=0), user=OPERATOR)
    assert (again.judged.errors, again.softened, again.time) == ((), True, NOW_TEXT)


@table(
    "new, old",
    {
        "had it before": (card(WITH_SCOPE), card(WITH_SCOPE)),
        "has it no more": (card({}), card(WITH_SCOPE)),
        "closes only": (card(WITH_SCOPE, "NoSchedule"), card({}, "NoSchedule")),
        "does nothing": (card(WITH_SCOPE, "None"), card({}, "None")),
    },
)
def test_time_stays_where_no_further_pod_is_evicted(new: Any, old: Any) -> None:
    kept = sent(new, old, impact=allowing(pods=50))
    assert (kept.judged.errors, kept.time) == ((), format_time(YESTERDAY))
    assert not begins_to_evict(decoded(new)[0], decoded(old)[0])


def test_later_time_that_comes_with_the_scope_is_kept() -> None:
    tomorrow = NOW + timedelta(days=1)
    kept = sent(card(WITH_SCOPE, added=tomorrow), card({}), impact=allowing(pods=50))
    assert (kept.judged.errors, kept.time) == ((), format_time(tomorrow))
