"""Rules of the patch controller's account, and of others who pretend that theirs are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import DRIVER, KEY, make_admission_request, make_context, make_patch, make_rule, make_taint
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing, told
from tests.unit.admission.patch_guarding import CREATED_TEXT, FIRST, cel, evicting, known, patching, racks
from tests.unit.inventory.values import claim, inventory_of, on
from tests.unit.patches.patched import slice_of
from webhook.admission.chain import mutate, policy_part, validate
from webhook.api.rules import (
    CONFIRM_IMPACT,
    DATA,
    EVICT,
    EVICTIONS_PER_SECOND,
    EXPIRES_AT,
    HARDWARE_LABEL,
    NOT_BEFORE,
    PATCH_LABEL,
    REACTION,
    REASONS,
    SCOPE,
    SOFTENED_FROM,
    DeviceSelector,
)
from webhook.api.taints import DeviceTaint
from webhook.inventory.state import Inventory, Sight
from webhook.inventory.targets import DeviceId, rule_name
from webhook.policy.decide import Judge
from webhook.policy.limits import REACTION_KEY, reaction_rule_name
from webhook.policy.model import (
    Action,
    ImpactLimits,
    ImpactSettings,
    InTreeEvictor,
    Policy,
    PolicyMode,
    Reaction,
    Rule,
    Softening,
)

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

ACCOUNT: Final = "system:serviceaccount:device-taint-webhook:device-taint-patch"
UID: Final = "uid-of-patch"
GPU_0: Final = {"driver": DRIVER, "device": "gpu-0"}


def stored_patch(filter_: Any = None, *taints: Any, **fields: Any) -> Any:
    """A patch that is there; for the first devices of all nodes unless it has another filter."""
    fields = {"uid": UID, "created": CREATED_TEXT, **fields}
    return patching(cel(FIRST) if filter_ is None else filter_, *taints, **fields)


def owner(uid: str = UID, name: str = "firmware", kind: str = "ResourceSlicePatch", **fields: Any) -> dict[str, Any]:
    version = "devicetaint.io/v1alpha1" if kind == "ResourceSlicePatch" else "resource.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True, **fields}


def written(selector: Any = None, taint: Any = None, **meta: Any) -> Any:
    """A rule as the controller writes it for the patch."""
    fields = {"name": "firmware-1", "labels": {PATCH_LABEL: UID}, "ownerReferences": [owner()], **meta}
    return make_rule(selector=GPU_0 if selector is None else selector, taint=taint or evicting(), meta=fields)


def genuine(
    selector: Any = None,
    taint: Any = None,
    of: Any = None,
    of_selector: Any = None,
    kind: str = "ResourceSlicePatch",
    **meta: Any,
) -> Any:
    """The same with the name that the controller gives it; that of another taint or selector, if given."""
    rule = written(selector, taint, **{"ownerReferences": [owner(kind=kind)], **meta})
    names = DeviceSelector(**(of_selector or rule["spec"]["deviceSelector"]))
    named = of or rule["spec"]["taint"]
    rule["metadata"]["name"] = rule_name("firmware", DeviceTaint(named["key"], "", named["effect"]), names)
    return rule


def judged(rule: Any, old: Any = None, *, user: str = ACCOUNT, **options: Any) -> Decision:
    """The verdict under limits that no rule of another account would pass."""
    if old is not None:
        rule, old = ({**each, "metadata": {**each["metadata"], "resourceVersion": "7"}} for each in (rule, old))
    patches = options.pop("patches", None) or known([options.pop("patch", None) or stored_patch()])
    cluster = options.pop("cluster", None) or racks()
    sight = Sight(cluster) if isinstance(cluster, Inventory) else cluster
    given = {"impact": allowing(pods=0, devices=0), "patch_account": ACCOUNT, "patches": patches}
    context = make_context(**{**given, "sight": sight, **options})
    return validate(make_admission_request(rule, old, user=user), context)


def faults(rule: Any, old: Any = None, **options: Any) -> list[str]:
    decision = judged(rule, old, **options)
    return [str(each.error).replace(" Forbidden:", "") for each in decision.denials]


def test_part_of_a_patch_is_admitted_whatever_it_hits_and_is_not_counted_again() -> None:
    decision = judged(written())
    assert decision.allowed
    assert (decision.findings, decision.assumed, decision.annotations) == ((), None, {})


@table(
    "rule",
    {
        "a device": written({**GPU_0, "pool": "node-1"}),
        "a later time": written(taint=evicting(time_added="2026-06-01T13:00:00Z")),
        "the server sets the time": written(taint=evicting(time_added=None)),
        "data": written(annotations={DATA: "{}"}),
    },
)
def test_parts_of_a_patch(rule: Any) -> None:
    assert faults(rule) == []


@table(
    "selector, patch, right",
    {
        "a name in all pools": (GPU_0, stored_patch(), False),
        "a driver": ({"driver": DRIVER}, stored_patch(cel("true")), False),
        "a pool": ({"driver": DRIVER, "pool": "node-1"}, stored_patch(cel("true")), False),
        "another pool": ({"driver": DRIVER, "pool": "node-0"}, stored_patch(cel("true")), True),
        "a device": ({**GPU_0, "pool": "node-1"}, stored_patch(), True),
        "by names": ({"driver": DRIVER}, stored_patch({"driver": DRIVER}), True),
    },
)
def test_wide_rule_reaches_no_device_in_use_that_nobody_publishes(selector: Any, patch: Any, *, right: bool) -> None:
    """No review has counted its pods for the patch: its filter selects what is published, unless it has only names."""
    cluster = inventory_of(
        *[slice_of({"name": "gpu-0", "attributes": {"place": {"int": 0}}}, pool=f"node-{at}") for at in range(2)],
        claim("shown", on(pool="node-0"), users=["u-0"]),
        claim("gone", on("gpu-7", pool="node-1"), users=["u-7"]),
        claim("gone too", on(pool="node-9"), users=["u-9"]),
    )
    device = "gpu-0" if "device" in selector else "gpu-7"
    pool = "node-9" if "device" in selector else "node-1"
    text = (
        f"spec.deviceSelector: device {DRIVER}/{pool}/{device} is in use and no slice shows it, so patch firmware does"
        " not select it; narrow the filter, so that rules for single devices will do"
    )
    assert faults(written(selector), patch=patch, cluster=cluster) == ([] if right else [text])


NOT_THERE = "metadata.ownerReferences: there is no ResourceSlicePatch firmware with that UID"
NO_CONTROLLER = (
    "metadata.ownerReferences: the patch controller may only write rules that a ResourceSlicePatch or a DeviceTaintRule"
    " controls"
)
LEFT_OUT = "has no such taint by patch firmware: its filter leaves it out, or another patch wins"


@table(
    "rule, fault",
    {
        "no owner": (written(ownerReferences=[]), NO_CONTROLLER),
        "no controller": (written(ownerReferences=[owner(controller=False)]), NO_CONTROLLER),
        "another kind": (written(ownerReferences=[owner(kind="Pod")]), NO_CONTROLLER),
        "another group": (written(ownerReferences=[owner(apiVersion="example.com/v1alpha1")]), NO_CONTROLLER),
        "another UID": (written(ownerReferences=[owner("uid-of-another")]), NOT_THERE),
        "no UID": (written(ownerReferences=[owner("")]), NOT_THERE),
        "gone": (written(ownerReferences=[owner(name="gone")]), NOT_THERE.replace("firmware", "gone")),
        "another label": (
            written(labels={PATCH_LABEL: "other"}),
            f"metadata.labels[{PATCH_LABEL}]: must be the UID of the patch",
        ),
        "another key": (
            written(taint=evicting(key="o.example.com/k")),
            "spec.taint: patch firmware has no taint o.example.com/k:NoExecute",
        ),
        "another effect": (written(taint=make_taint()), f"spec.taint: patch firmware has no taint {KEY}:NoSchedule"),
        "a value": (written(taint=evicting(value="v")), "spec.taint: must be that of patch firmware"),
        "an earlier time": (
            written(taint=evicting(time_added="2026-06-01T11:59:59Z")),
            "spec.taint.timeAdded: must not be before 2026-06-01T12:00:00Z, as patch firmware has it",
        ),
        "a description": (
            written(taint=evicting(description="d")),
            "spec.taint: must have no data, description or rate: those are annotations",
        ),
        "a device more": (
            written({"driver": DRIVER, "pool": "node-1"}),
            f"spec.deviceSelector: device {DRIVER}/node-1/gpu-1 {LEFT_OUT}",
        ),
        "another device": (
            written({"driver": DRIVER, "pool": "node-1", "device": "gpu-1"}),
            f"spec.deviceSelector: device {DRIVER}/node-1/gpu-1 {LEFT_OUT}",
        ),
        "unknown field": (written({**GPU_0, "other": 1}), "spec.deviceSelector: must consist of names"),
        "no selector": (
            {**written(), "spec": {"taint": evicting()}},
            "spec.deviceSelector: must consist of names",
        ),
        "a device to come": (
            written({**GPU_0, "pool": "node-9"}),
            "spec.deviceSelector: selects no published device, and is not within the names of patch firmware",
        ),
        **{
            name: (
                written(annotations={name: text}),
                f"metadata.annotations[{name}]: must be as patch firmware has it, or as it was stored",
            )
            for name, text in (
                (EVICT, "true"),
                (SOFTENED_FROM, "NoExecute"),
                (EVICTIONS_PER_SECOND, "9"),
                (NOT_BEFORE, "2027-01-01T00:00:00Z"),
                (EXPIRES_AT, "2027-01-01T00:00:00Z"),
                (CONFIRM_IMPACT, "v1.1.1.1.1.1.AAAA"),
                (SCOPE, "hardware"),
            )
        },
    },
)
def test_rule_that_is_no_part_of_its_patch_is_refused(rule: Any, fault: str) -> None:
    assert faults(rule) == [fault]


PLAIN = stored_patch({"driver": DRIVER, "pool": "node-0"})


@table(
    "selector, right",
    {
        "the filter itself": ({"driver": DRIVER, "pool": "node-0"}, True),
        "a device to come": ({"driver": DRIVER, "pool": "node-0", "device": "gpu-9"}, True),
        "more": ({"driver": DRIVER}, False),
        "another pool": ({"driver": DRIVER, "pool": "node-1"}, False),
        "every device": ({}, False),
    },
)
def test_rule_of_a_patch_for_names(selector: Any, *, right: bool) -> None:
    beyond = "spec.deviceSelector: selects more than the filter of patch firmware"
    assert faults(written(selector), patch=PLAIN) == ([] if right else [beyond])


def test_rule_for_all_devices_needs_a_patch_without_filter() -> None:
    patch = make_patch(filter_=None, meta=stored_patch()["metadata"], taints=[evicting()])
    assert faults(written({}), patch=patch) == []


def test_rule_is_refused_where_another_patch_wins() -> None:
    rival = patching({"pool": "node-0"}, name="rival", uid="u", created=CREATED_TEXT, priority=1)
    patches = known([stored_patch({"driver": DRIVER}), rival])
    assert faults(written({"driver": DRIVER, "pool": "node-1"}), patches=patches) == []
    assert faults(written({"driver": DRIVER, "pool": "node-7"}), patches=patches) == [], "a pool to come"
    assert faults(written({"driver": DRIVER, "pool": "node-0"}), patches=patches) == [
        f"spec.deviceSelector: device {DRIVER}/node-0/gpu-0 {LEFT_OUT}"
    ]
    assert faults(written({"driver": DRIVER}), patches=patches) != []


def test_rate_and_softening_come_from_the_patch() -> None:
    fast = stored_patch(None, evicting(evictionsPerSecond=5))
    assert faults(written(annotations={EVICTIONS_PER_SECOND: "5"}), patch=fast) == []
    assert len(faults(written(annotations={EVICTIONS_PER_SECOND: "6"}), patch=fast)) == 1
    absent = {"patch": fast, "in_tree_evictor": InTreeEvictor.ABSENT}
    assert len(faults(written(), **absent)) == 1, "the rate of the policy may be higher"
    assert faults(written(annotations={EVICTIONS_PER_SECOND: "5"}), **absent) == []
    assert faults(written(), patch=fast) == [], "the in-tree controller has no rate"
    soft = stored_patch(None, make_taint(), softened=KEY)
    marks = {EVICT: "true", SOFTENED_FROM: "NoExecute"}
    assert faults(written(taint=make_taint(), annotations=marks), patch=soft) == []
    assert faults(written(taint=make_taint()), patch=soft) == [], "it only closes the devices"
    assert len(faults(written(taint=make_taint(), annotations={EVICT: "true"}), patch=soft)) == 1


def test_what_others_wrote_on_a_rule_may_stay() -> None:
    confirmed = written(annotations={CONFIRM_IMPACT: "v1.1.1.1.1.1.AAAA"})
    assert faults(confirmed, confirmed) == []
    assert len(faults(confirmed, written())) == 1


@table(
    "options, why",
    {
        "cold inventory": ({"cluster": UNKNOWN}, "claims were not read yet"),
        "cold patches": ({"patches": known(unknown="patches not read yet")}, "patches not read yet"),
    },
)
def test_rule_is_refused_until_it_can_be_checked(options: Any, why: str) -> None:
    assert faults(written(), **options) == [f"metadata.ownerReferences: cannot be checked: {why}; try again in a while"]


def test_rule_of_a_patch_that_cannot_be_evaluated_is_refused() -> None:
    assert faults(written(), patch=stored_patch({"deviceClassName": "gone"})) == [
        "spec.deviceSelector: cannot be checked: device class gone does not exist; try again in a while"
    ]


@pytest.mark.parametrize("mode", [PolicyMode.WARN, PolicyMode.OFF])
def test_mode(mode: PolicyMode) -> None:
    decision = judged(written(taint=make_taint()), mode=mode)
    assert decision.allowed
    assert bool(told(decision)) is (mode is PolicyMode.WARN)
    assert decision.turned_down is (mode is PolicyMode.WARN)


def test_without_a_cluster_nothing_is_refused() -> None:
    context = make_context(patch_account=ACCOUNT, offline=True)
    assert validate(make_admission_request(written(ownerReferences=[]), user=ACCOUNT), context).allowed


# --- others ----------------------------------------------------------------------------------------


@table(
    "options",
    {
        "another account": {"user": "mallory"},
        "no controller": {"user": "mallory", "patch_account": ""},
        "no name": {"user": "", "patch_account": ""},
        "a name that begins alike": {"user": f"{ACCOUNT}-2"},
    },
)
def test_marks_of_the_controller_are_no_way_around_the_guard(options: Any) -> None:
    decision = judged(genuine(), **options)
    assert not decision.allowed
    [text] = [text for severity, text in told(decision) if severity == "deny"]
    assert text.startswith("hits 4 devices, 4 pods in 1 namespace: the limit is 0 devices and 0 pods")


def test_policy_on_taints_was_asked_for_the_patch() -> None:
    deny = Rule("deny-all", Action.DENY)
    policy = Policy(taint_rules=(deny,), impact=allowing(pods=0))
    context = make_context(
        judge=Judge(policy), sight=Sight(racks()), patches=known([stored_patch()]), patch_account=ACCOUNT
    )
    by_controller = make_admission_request(written(), user=ACCOUNT)
    assert validate(by_controller, context).allowed
    assert policy_part(by_controller, context).findings == ()
    ruled = policy_part(make_admission_request(written(), user="dev"), context)
    assert ruled.findings
    assert validate(by_controller, context, ruled).allowed
    assert not validate(make_admission_request(written(), user="dev"), context).allowed


def test_rule_of_the_controller_is_not_softened() -> None:
    soften = ImpactSettings(limits=(ImpactLimits(soften=Softening.ALWAYS, pods=1),))
    patches = known([stored_patch()])
    context = make_context(impact=soften, sight=Sight(racks()), patches=patches, patch_account=ACCOUNT)
    assert mutate(make_admission_request(written(), user=ACCOUNT), context).patch == ()
    assert mutate(make_admission_request(written(), user="dev"), context).softened


def test_times_of_the_controller_are_left_as_they_are() -> None:
    """A patch that grows has rules of an earlier time; with /evict, a rule of another account would get the present."""
    early = make_taint(time_added="2026-06-01T10:00:00Z")
    marks = {EVICT: "true", SOFTENED_FROM: "NoExecute"}
    context = make_context(sight=Sight(racks()), patch_account=ACCOUNT)
    rule = written(taint=early, annotations=marks)
    assert mutate(make_admission_request(rule, user=ACCOUNT), context).patch == ()
    assert mutate(make_admission_request(rule, user="dev"), context).patch != ()


# --- rules of reactions ----------------------------------------------------------------------------


REACTIONS: Final = (Reaction("xid", DRIVER, KEY),)


def degraded(effect: str = "NoSchedule", **meta: Any) -> Any:
    """A rule as a reaction makes it: no owner, one device by all its names."""
    device = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    taint = make_taint(key=REACTION_KEY, effect=effect, value=None)
    return make_rule(selector=device, taint=taint, meta={"name": "reaction-1", "labels": {REACTION: "true"}, **meta})


def test_rule_of_a_reaction_is_judged_as_that_of_any_account() -> None:
    assert judged(degraded(), impact=allowing(devices=1), reactions=REACTIONS).allowed
    decision = judged(degraded(), impact=allowing(devices=0), reactions=REACTIONS)
    [text] = [text for severity, text in told(decision) if severity == "deny"]
    assert "the limit is 0 devices" in text


def test_rule_of_a_patch_with_the_key_of_reactions_is_one_of_the_patch() -> None:
    """On one device of a driver with reactions it looks like one of theirs."""
    patch = stored_patch(None, make_taint(key=REACTION_KEY, value=None))
    options: dict[str, Any] = {"patch": patch, "reactions": REACTIONS, "impact": allowing(devices=0)}
    marks: dict[str, Any] = {"labels": {PATCH_LABEL: UID}, "ownerReferences": [owner()]}
    assert faults(degraded(**marks), **options) == []
    assert len(faults(degraded(**marks | {"ownerReferences": [owner("other")]}), **options)) == 1
    assert len(faults(degraded(), **options)) == 1


@table(
    "rule, reactions",
    {"no reaction": (degraded(), ()), "more than the reaction does": (degraded("NoExecute"), REACTIONS)},
)
def test_rule_without_owner_that_no_reaction_asks_for_is_refused(rule: Any, reactions: Any) -> None:
    assert faults(rule, impact=allowing(devices=9), reactions=reactions) == [NO_CONTROLLER]


def test_taint_rules_apply_to_rules_of_reactions() -> None:
    policy = Policy(taint_rules=(Rule("deny-all", Action.DENY),), impact=allowing(devices=9), reactions=REACTIONS)
    context = make_context(judge=Judge(policy), sight=Sight(racks()), patch_account=ACCOUNT)
    request = make_admission_request(degraded(), user=ACCOUNT)
    assert policy_part(request, context).findings
    assert not validate(request, context).allowed


def test_rule_of_a_reaction_may_be_softened() -> None:
    policy = Policy(
        impact=ImpactSettings(limits=(ImpactLimits(soften=Softening.ALWAYS, pods=1),)),
        reactions=(Reaction("xid", DRIVER, KEY, effect="NoExecute"),),
    )
    context = make_context(judge=Judge(policy), sight=Sight(racks()), patch_account=ACCOUNT)
    assert mutate(make_admission_request(degraded("NoExecute"), user=ACCOUNT), context).softened


# --- marks of our controllers on rules of other accounts ----------------------------------------------

LEAVE_OUT: Final = (
    "; leave out labels devicetaint.io/patch and devicetaint.io/hardware-of, and the owner reference that controls it"
)
WOULD_NOT: Final = "metadata.ownerReferences: the patch controller would not write this rule: "
NOT_NAMED: Final = "its name is none for this taint and selector of firmware"
NOT_ONE: Final = "its label and its controller do not name the same patch or rule"


@table(
    "rule, fault",
    {
        "a name of its own": (written(), NOT_NAMED),
        "another effect": (genuine(taint=make_taint(effect="None"), of=evicting()), NOT_NAMED),
        "more devices": (genuine({"driver": DRIVER}, of_selector=GPU_0), NOT_NAMED),
        "a label alone": (genuine(ownerReferences=[]), NOT_ONE),
        "an owner reference alone": (genuine(labels={}), NOT_ONE),
        "a label of another sort": (genuine(labels={HARDWARE_LABEL: UID}), NOT_ONE),
        "no such patch": (
            genuine(ownerReferences=[owner("other")], labels={PATCH_LABEL: "other"}),
            "there is no ResourceSlicePatch firmware with that UID",
        ),
        "a taint that the patch does not have": (
            genuine(taint=make_taint(effect="None")),
            f"patch firmware has no taint {KEY}:None",
        ),
        "devices that the patch does not select": (
            genuine({"driver": DRIVER, "device": "gpu-1"}),
            f"device {DRIVER}/node-0/gpu-1 {LEFT_OUT}",
        ),
        "no such rule": (
            genuine(kind="DeviceTaintRule", labels={HARDWARE_LABEL: UID}),
            "there is no DeviceTaintRule firmware with that UID",
        ),
    },
)
@pytest.mark.parametrize("account", [ACCOUNT, ""])
def test_marks_on_a_rule_that_the_controller_would_not_write_are_refused(rule: Any, fault: str, account: str) -> None:
    options: dict[str, Any] = {"user": "mallory", "patch_account": account, "impact": allowing()}
    assert faults(rule, **options) == [f"{WOULD_NOT}{fault}{LEAVE_OUT}"]
    assert faults(rule, rule, **options) == [], "they are not judged again"
    plain = {**rule, "metadata": {"name": rule["metadata"]["name"]}}
    assert faults(plain, rule, **options) == [], "they may be taken away"
    assert faults(rule, plain, **options) == [f"{WOULD_NOT}{fault}{LEAVE_OUT}"]
    assert judged(rule, **options, mode=PolicyMode.WARN).turned_down
    assert told(judged(rule, **options, mode=PolicyMode.OFF)) == []


def test_rule_of_the_controller_that_somebody_restores_is_admitted() -> None:
    assert faults(genuine(), user="velero", impact=allowing()) == []
    assert faults(genuine(), user="velero", patch_account="", impact=allowing()) == []


def test_owner_of_another_kind_is_no_mark() -> None:
    assert faults(genuine(labels={}, ownerReferences=[owner(kind="Pod")]), user="ml", impact=allowing()) == []


def test_marks_that_cannot_be_checked_are_refused() -> None:
    unknown = {"user": "mallory", "impact": allowing(), "cluster": UNKNOWN}
    assert f"{WOULD_NOT}that cannot be checked: claims were not read yet{LEAVE_OUT}" in faults(genuine(), **unknown)


def test_names_are_compared_without_a_cluster() -> None:
    context = make_context(offline=True)
    assert not validate(make_admission_request(written(), user="mallory"), context).allowed
    assert validate(make_admission_request(genuine(), user="mallory"), context).allowed


FORGED_REASONS: Final = (
    "metadata.annotations[devicetaint.io/reasons]: a reaction would not write this rule: its name, taint or selector is"
    " another one; leave out this annotation and label devicetaint.io/reaction"
)
DEGRADED: Final = reaction_rule_name(DeviceId(DRIVER, "node-0", "gpu-0"))


@table(
    "meta, effect, refused",
    {
        "reasons": ({"name": "a", "annotations": {REASONS: "{}"}}, "NoSchedule", True),
        "a label": ({"name": "a"}, "NoSchedule", True),
        "another label": ({"name": "a", "labels": {REACTION: "no"}}, "NoSchedule", False),
        "the name and effect None": ({"name": DEGRADED, "annotations": {REASONS: "{}"}}, "None", True),
        "as a reaction does": ({"name": DEGRADED, "annotations": {REASONS: "{}"}}, "NoSchedule", False),
    },
)
def test_marks_of_reactions_on_rules_that_no_reaction_would_write_are_refused(
    meta: dict[str, Any], effect: str, *, refused: bool
) -> None:
    rule = degraded(effect, **meta)
    for options in ({"patch_account": ACCOUNT}, {"patch_account": ""}):
        given: dict[str, Any] = {"user": "mallory", "impact": allowing(), "reactions": REACTIONS, **options}
        assert faults(rule, **given) == ([FORGED_REASONS] if refused else [])
        assert faults(rule, rule, **given) == []
