from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    EARLIER_TEXT,
    NOW_TEXT,
    make_admission_request,
    make_alternatives,
    make_claim,
    make_context,
    make_device,
    make_meta,
    make_patch,
    make_request,
    make_result,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_template,
    make_toleration,
)
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_defaults
from webhook.admission.chain import mutate, validate
from webhook.admission.claim_view import DEFAULTED, REQUESTED_BY, SCHEDULER, annotation_of
from webhook.admission.decision import apply_patch
from webhook.admission.defaulting import edits_for
from webhook.api.claims import EXTENDED_RESOURCE
from webhook.api.meta import GROUP
from webhook.policy.match import Requester
from webhook.policy.model import CLAIM_CONTROLLER

if TYPE_CHECKING:
    from webhook.admission.context import AdmissionContext

CONTEXT = make_context(offline=True)  # files get no author
OLD_TEXT = "2026-05-01T00:00:00Z"
FUTURE_TEXT = "2027-01-01T00:00:00Z"


def edits(manifest: Any, old: Any = None, context: AdmissionContext = CONTEXT) -> dict[str, Any]:
    """What mutation sets, by pointer; a second mutation must find nothing to do."""
    decision = mutate(make_admission_request(manifest, old), context)
    patched = apply_patch(manifest, decision.patch)
    assert mutate(make_admission_request(patched, old), context).patch == ()
    return {operation["path"]: operation["value"] for operation in decision.patch}


def rule(time: str | None = EARLIER_TEXT, effect: str = "NoSchedule", *, evict: str | None = None, **taint: Any) -> Any:
    annotations = None if evict is None else {"devicetaint.io/evict": evict}
    return make_rule(taint=make_taint(effect=effect, time_added=time, **taint), annotations=annotations)


TIME = "/spec/taint/timeAdded"


@table(
    "new, time",
    {
        "even for one that nobody knows": (rule(None, "Evict"), NOW_TEXT),
        "a given time is kept (D-3)": (rule(OLD_TEXT), None),
        "whichever way it is written": (rule("2026-06-01T12:00:00.5+00:00"), None),
        "an eviction asked for today does not start last month": (rule(OLD_TEXT, evict="true"), NOW_TEXT),
        "nor 61 seconds ago": (rule("2026-06-01T11:58:59Z", evict="true"), NOW_TEXT),
        "a minute ago is today": (rule("2026-06-01T11:59:00Z", evict="true"), None),
        "and may start later": (rule(FUTURE_TEXT, evict="true"), None),
        "no eviction, no change": (rule(OLD_TEXT, evict="false"), None),
    },
)
def test_time_of_a_new_rule(new: Any, time: str | None) -> None:
    assert edits(new) == ({} if time is None else {TIME: time})


@table(
    "old, new, time",
    {
        "nothing changed": (rule(OLD_TEXT), rule(OLD_TEXT), None),
        "not if the key changed": (rule(OLD_TEXT), rule(None, key="k"), NOW_TEXT),
        "not if the effect changed": (rule(OLD_TEXT), rule(None, "NoExecute"), NOW_TEXT),
        "not if there is none to carry over": (rule(None), rule(None), NOW_TEXT),
        "the same instant in another zone (D-4)": (rule("2026-05-01T02:00:00+02:00"), rule(OLD_TEXT, "None"), NOW_TEXT),
        "also without a new effect": (rule(OLD_TEXT), rule(FUTURE_TEXT), None),
        "eviction asked for now starts now": (rule(OLD_TEXT), rule(OLD_TEXT, evict="true"), NOW_TEXT),
        "and does not start again": (rule(OLD_TEXT, evict="true"), rule(OLD_TEXT, evict="true"), None),
        "eviction taken back": (rule(OLD_TEXT, evict="true"), rule(OLD_TEXT), None),
        "now is now already": (rule(NOW_TEXT), rule(NOW_TEXT, "NoExecute"), None),
    },
)
def test_time_of_an_updated_rule(old: Any, new: Any, time: str | None) -> None:
    assert edits(new, old) == ({} if time is None else {TIME: time})


@table(
    "spec, expected",
    {
        "an empty spec gets the parents it needs": ({}, {"/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}),
        "a null taint likewise": ({"taint": None}, {"/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}),
        "and a null spec": (None, {"/spec": {}, "/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}),
    },
)
def test_missing_parents_of_a_rule_are_made(spec: Any, expected: dict[str, Any]) -> None:
    assert edits(make_rule() | {"spec": spec}) == expected


def test_time_is_set_in_full_seconds() -> None:
    context = make_context(now=CONTEXT.now.replace(microsecond=999_999))
    assert edits(rule(None), context=context) == {TIME: NOW_TEXT}


MISSING = make_taint(time_added=None)


@table(
    "stored, time",
    {
        "the same taint of the device": (make_device("b", [make_taint(time_added=OLD_TEXT)]), OLD_TEXT),
        "the first of several": (make_device("b", [make_taint(time_added=OLD_TEXT), make_taint()]), OLD_TEXT),
        "another device": (make_device("a", [make_taint(time_added=OLD_TEXT)]), NOW_TEXT),
        "no taint before": (make_device("b"), NOW_TEXT),
    },
)
def test_time_is_carried_over_within_a_device(stored: Any, time: str) -> None:
    new = make_slice([make_device("x"), make_device("b", [MISSING])])
    old = make_slice([stored, make_device("x", [make_taint(time_added="2026-01-01T00:00:00Z")])])
    assert edits(new, old) == {"/spec/devices/1/taints/0/timeAdded": time}


def test_times_of_the_first_64_stored_taints_of_a_device_are_carried_over() -> None:
    new = make_slice([make_device("b", [make_taint("k63", time_added=None), make_taint("k64", time_added=None)])])
    old = make_slice([make_device("b", [make_taint(f"k{number}", time_added=OLD_TEXT) for number in range(65)])])
    at = "/spec/devices/0/taints"
    assert edits(new, old) == {f"{at}/0/timeAdded": OLD_TEXT, f"{at}/1/timeAdded": NOW_TEXT}


@table(
    "taints, stored, bumped",
    {
        "a new effect at the old time": ([make_taint(effect="NoExecute")], [make_taint()], [0]),
        "the old effect": ([make_taint()], [make_taint()], []),
        "a new effect at a new time": ([make_taint(effect="NoExecute", time_added=FUTURE_TEXT)], [make_taint()], []),
        "another value is another taint": ([make_taint(effect="NoExecute", value="v")], [make_taint()], []),
        "two stored ones: nobody knows which of them changed": (
            [make_taint(effect="NoExecute")],
            [make_taint(), make_taint(effect="None")],
            [],
        ),
        "found by key and value, not by place": (
            [make_taint(), make_taint(value="v", effect="None")],
            [make_taint(value="v"), make_taint()],
            [1],
        ),
        "now is now": ([make_taint(effect="NoExecute", time_added=NOW_TEXT)], [make_taint(time_added=NOW_TEXT)], []),
        "a missing time is set once": ([MISSING | {"effect": "NoExecute"}], [MISSING], [0]),
    },
)
def test_effect_that_changes_in_a_slice_restarts_the_clock_only_if_asked_to(
    taints: Any, stored: Any, bumped: list[int]
) -> None:
    new, old = make_slice([make_device(taints=taints)]), make_slice([make_device(taints=stored)])
    asked = make_context(bump_slice_time_added=True)
    expected = {f"/spec/devices/0/taints/{position}/timeAdded": NOW_TEXT for position in bumped}
    assert edits(new, old, asked) == expected
    missing = {path: NOW_TEXT for position, path in enumerate(expected) if "timeAdded" not in taints[position]}
    assert edits(new, old) == missing


def test_new_slice_has_no_clock_to_restart() -> None:
    asked = make_context(bump_slice_time_added=True)
    assert edits(make_slice([make_device(taints=[make_taint()])]), context=asked) == {}


def test_times_of_taints_beside_the_devices() -> None:
    def beside(device: str, **taint: Any) -> dict[str, Any]:
        return {"device": device, "taint": make_taint(**taint)}

    new = make_slice([], taints=[beside("a", time_added=None), beside("b", time_added=None), beside("c"), None])
    old = make_slice([], taints=[beside("b", time_added=OLD_TEXT), beside("a", time_added=OLD_TEXT, value="v")])
    assert edits(new, old) == {
        "/spec/taints/0/taint/timeAdded": NOW_TEXT,
        "/spec/taints/1/taint/timeAdded": OLD_TEXT,
        "/spec/taints/3": {},
        "/spec/taints/3/taint": {},
        "/spec/taints/3/taint/timeAdded": NOW_TEXT,
    }
    assert edits(make_slice([], taints=[beside("a", time_added=None)])) == {"/spec/taints/0/taint/timeAdded": NOW_TEXT}


def test_times_of_a_patch() -> None:
    new = make_patch(taints=[MISSING, MISSING | {"value": "v"}, make_taint(time_added=FUTURE_TEXT)])
    assert edits(new) == {"/spec/devices/taints/0/timeAdded": NOW_TEXT, "/spec/devices/taints/1/timeAdded": NOW_TEXT}
    assert edits(new, make_patch(taints=[make_taint(time_added=OLD_TEXT)])) == {
        "/spec/devices/taints/0/timeAdded": OLD_TEXT,
        "/spec/devices/taints/1/timeAdded": NOW_TEXT,
    }


def test_times_of_a_patch_of_the_first_revision_are_those_of_no_execute() -> None:
    """P-21: there is no default for other taints."""
    plain = MISSING | {"effect": "NoSchedule"}
    acting = MISSING | {"effect": "NoExecute"}
    planned = {"apiVersion": f"{GROUP}/v1alpha3"}
    new = make_patch(taints=[plain, acting, plain, acting | {"value": "v"}]) | planned
    assert edits(new) == {"/spec/devices/taints/1/timeAdded": NOW_TEXT, "/spec/devices/taints/3/timeAdded": NOW_TEXT}
    stored = make_patch(taints=[plain | {"timeAdded": OLD_TEXT}, acting | {"timeAdded": OLD_TEXT}]) | planned
    assert edits(new, stored) == {
        "/spec/devices/taints/1/timeAdded": OLD_TEXT,
        "/spec/devices/taints/3/timeAdded": NOW_TEXT,
    }


BARE = make_toleration(operator=None, value="v")


def test_operator_in_an_allocation() -> None:
    claim = make_claim(status=make_status(make_result(), make_result([BARE])))
    assert edits(claim) == {"/status/allocation/devices/results/1/tolerations/0/operator": "Equal"}


def test_what_is_no_object_of_ours_is_left_alone() -> None:
    assert list(edits_for(object(), None, CONTEXT)) == []


# --- authors of templates, and default tolerations ------------------------------------------------


GROUPS = ("ml", "system:authenticated")
JANE = Requester("jane", GROUPS)
WAIT = {"key": "maint", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
WAITING = [make_defaults("wait", **WAIT)]
OWN = make_toleration()


def paths(manifest: Any, old: Any = None, *, user: str = "jane", **fields: Any) -> list[str]:
    """What is edited, each as `op path`."""
    return [f"{edit['op']} {edit['path']}" for edit in mutated(manifest, old, user=user, **fields)[1]]


def mutated(
    manifest: Any, old: Any = None, *, user: str = "jane", offline: bool = False, unproved: str = "", **fields: Any
) -> tuple[Any, Any, tuple[str, ...]]:
    """The object as it becomes, the patch, and the warnings."""
    request = make_admission_request(manifest, old, user=user, groups=GROUPS)
    context = make_context(judge=judge_of(**fields), offline=offline, authors_unproved=unproved)
    decision = mutate(request, context)
    assert decision.allowed
    return apply_patch(manifest, decision.patch), decision.patch, decision.warnings


def authored(annotation: str | None, **annotations: str) -> Any:
    """A template whose claims get these annotations."""
    template = make_template([OWN])
    if annotation is not None:
        annotations[REQUESTED_BY] = annotation
    template["spec"]["metadata"] = {"annotations": annotations, "labels": {"a": "b"}}
    return template


AUTHOR = "/spec/metadata/annotations/devicetaint.io~1requested-by"
NOTE = "/metadata/annotations/devicetaint.io~1defaulted-tolerations"


@pytest.mark.parametrize("mode", ["enforce", "warn", "off"])
def test_template_gets_its_author_with_the_parents_that_it_lacks(mode: str) -> None:
    template = make_template([OWN])
    assert paths(template, mode=mode) == ["add /spec/metadata", "add /spec/metadata/annotations", f"add {AUTHOR}"]
    stored = mutated(template, mode=mode)[0]
    assert stored["spec"]["metadata"]["annotations"] == {REQUESTED_BY: annotation_of(JANE)}


def test_author_is_written_also_while_nobody_proves_it() -> None:
    """The spec is immutable: later it is known."""
    assert paths(make_template([OWN]), unproved="no policy")[-1] == f"add {AUTHOR}"


@table(
    "annotation",
    {
        "that names somebody else": '{"username":"admin","groups":["system:masters"]}',
        "of an older version": '{"username":"jane","mac":"\u00e9"}',
        "that is empty": "",
        "from when the author was in other groups": annotation_of(Requester("jane", ("ops",))),
        "without groups that can be named": '{"username":"jane","groupsTruncated":true}',
    },
)
@pytest.mark.parametrize("mode", ["enforce", "off"])
def test_annotation_is_overwritten(annotation: str, mode: str) -> None:
    template = authored(annotation, keep="me")
    assert paths(template, mode=mode) == [f"add {AUTHOR}"]
    stored = mutated(template, mode=mode)[0]["spec"]["metadata"]
    assert stored == {"annotations": {REQUESTED_BY: annotation_of(JANE), "keep": "me"}, "labels": {"a": "b"}}


def test_null_parents_are_replaced() -> None:
    for metadata in (None, {"annotations": None}):
        template = make_template([OWN])
        template["spec"]["metadata"] = metadata
        assert REQUESTED_BY in mutated(template)[0]["spec"]["metadata"]["annotations"]


def test_files_get_their_author_when_they_are_created() -> None:
    for template in (make_template([OWN]), authored("x")):
        assert mutated(template, offline=True)[1:] == ((), ())


@pytest.mark.parametrize("annotation", [None, "x"])
def test_names_with_control_characters_are_left_out_with_a_warning(annotation: str | None) -> None:
    stored, _, (warning,) = mutated(authored(annotation, keep="me"), user="ja\nne")
    assert stored["spec"]["metadata"]["annotations"] == {"keep": "me"}
    assert f"[{REQUESTED_BY}]: is left out: a name of the requester has control characters" in warning
    assert paths(stored, user="ja\nne") == []


def claim_with(annotation: str, **annotations: str) -> Any:
    meta = make_meta("c", namespace="ml", annotations={REQUESTED_BY: annotation, **annotations})
    return make_claim(meta=meta)


def test_annotation_on_a_claim_of_ones_own_is_dropped_with_a_warning() -> None:
    claim = claim_with("x", keep="me")
    stored, _, warnings = mutated(claim)
    assert stored["metadata"]["annotations"] == {"keep": "me"}
    assert len(warnings) == 1
    assert (
        "metadata.annotations[devicetaint.io/requested-by]: is for claims that are made from templates" in warnings[0]
    )
    assert paths(claim, mode="off") == ["remove /metadata/annotations/devicetaint.io~1requested-by"]


def test_annotation_on_a_generated_claim_is_kept() -> None:
    assert paths(claim_with("x"), user=CLAIM_CONTROLLER) == []


def test_generated_claim_keeps_its_author_when_something_is_added() -> None:
    annotation = annotation_of(JANE)
    assert annotation is not None
    claim = make_claim([OWN], meta=claim_with(annotation)["metadata"])
    stored = mutated(claim, user=CLAIM_CONTROLLER, defaultTolerations=WAITING)[0]
    assert stored["spec"] != claim["spec"]
    assert stored["metadata"]["annotations"][REQUESTED_BY] == annotation
    assert paths(stored, user=CLAIM_CONTROLLER, defaultTolerations=WAITING) == []


def test_nothing_is_added_that_gets_a_claim_refused_since_nobody_answers_for_it() -> None:
    """Templates from before we came have no author: their pods must go on starting."""
    fields: dict[str, Any] = {"unknownAuthor": "deny", "generatedClaims": "enforce", "defaultTolerations": WAITING}
    claim = make_claim()
    stored, patch, _ = mutated(claim, user=CLAIM_CONTROLLER, **fields)
    assert patch == ()
    context = make_context(judge=judge_of(**fields))
    assert validate(make_admission_request(stored, user=CLAIM_CONTROLLER), context).allowed
    assert paths(claim, **fields) != []


def test_claims_of_the_scheduler_for_extended_resources_get_nothing() -> None:
    claim = claim_with("x", **{EXTENDED_RESOURCE: "true"})
    assert paths(claim, user=SCHEDULER, defaultTolerations=WAITING) == []
    assert paths(claim, defaultTolerations=WAITING) != []


@table(
    "manifest, at",
    {
        "a request without tolerations": (make_claim(), "/spec/devices/requests/0/exactly/tolerations"),
        "a request with one": (make_claim([OWN]), "/spec/devices/requests/0/exactly/tolerations/1"),
        "a request with none given": (
            make_claim(requests=[make_request(tolerations=None) | {"name": "r"}]),
            "/spec/devices/requests/0/exactly/tolerations",
        ),
        "a flat request": (make_claim(version="v1beta1"), "/spec/devices/requests/0/tolerations"),
        "an alternative": (
            make_claim(requests=[make_alternatives([OWN])]),
            "/spec/devices/requests/0/firstAvailable/0/tolerations/1",
        ),
        "a flat request of a template": (make_template(version="v1beta1"), "/spec/spec/devices/requests/0/tolerations"),
    },
)
def test_default_is_added_where_the_request_stands(manifest: Any, at: str) -> None:
    added = [path for path in paths(manifest, defaultTolerations=WAITING) if "metadata" not in path or NOTE in path]
    assert added[0] == f"add {at}"
    assert added[-1] == f"add {NOTE}"
    assert len([path for path in added if "tolerations" in path and path != f"add {NOTE}"]) == 1


def test_defaults_follow_one_another_behind_the_tolerations_that_are_there() -> None:
    first, second = make_toleration("first"), make_toleration("second")
    stored, patch, _ = mutated(make_claim([OWN]), defaultTolerations=[{"name": "two", "tolerations": [first, second]}])
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] == [OWN, first, second]
    at = "/spec/devices/requests/0/exactly/tolerations"
    assert [edit["path"] for edit in patch if edit["path"].startswith(at)] == [f"{at}/1", f"{at}/2"]


def test_null_list_is_replaced() -> None:
    claim = make_claim(requests=[{"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": None}}])
    stored = mutated(claim, defaultTolerations=WAITING)[0]
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] == [WAIT]


def test_note_and_warning_say_what_was_added_where() -> None:
    claim = make_claim(
        requests=[make_request("a", [OWN]), make_alternatives([], [make_toleration(key="maint", effect=None)])]
    )
    stored, _, warnings = mutated(claim, defaultTolerations=WAITING)
    note = json.loads(stored["metadata"]["annotations"][DEFAULTED])
    assert note == {"spec.devices.requests[0].exactly": [WAIT], "spec.devices.requests[1].firstAvailable[0]": [WAIT]}
    assert len(warnings) == 2
    assert warnings[0].startswith("spec.devices.requests[0].exactly.tolerations: added by default: ")
    assert warnings[0].endswith("[DT120]")


def test_note_is_on_the_template_and_not_on_its_claims() -> None:
    stored = mutated(make_template(), defaultTolerations=WAITING)[0]
    assert DEFAULTED in stored["metadata"]["annotations"]
    assert DEFAULTED not in stored["spec"]["metadata"]["annotations"]


def test_note_that_mutate_wrote_does_not_get_the_object_refused() -> None:
    rule = {
        "name": "none-of-ours",
        "action": "deny",
        "match": {"when": "claim.annotations.exists(key, key.startsWith('devicetaint.io/'))", "deviceClasses": ["*"]},
    }
    request = make_admission_request(make_claim())
    context = make_context(judge=judge_of(rule, defaultTolerations=WAITING))
    stored = apply_patch(request.object, mutate(request, context).patch)
    assert DEFAULTED in stored["metadata"]["annotations"]
    assert validate(make_admission_request(stored), context).allowed


def test_what_was_added_is_put_back_also_when_the_policy_adds_nothing_any_more() -> None:
    for manifest in (make_claim([OWN]), make_template([OWN])):
        stored = mutated(manifest, defaultTolerations=WAITING)[0]
        assert mutated(manifest, stored, user="joe")[0] == stored


def test_author_of_a_stored_template_is_put_back_whoever_sends_it() -> None:
    stored = mutated(make_template([OWN]))[0]
    forged = json.loads(json.dumps(stored))
    forged["spec"]["metadata"]["annotations"][REQUESTED_BY] = '{"username":"admin"}'
    assert mutated(forged, stored, user="joe")[0] == stored
    assert mutated(forged, stored, user="joe", mode="off")[0] == stored


def test_template_from_before_we_came_gets_no_author_by_an_update() -> None:
    """Its specification is immutable, and whoever updates it is not who wrote it."""
    template = make_template([OWN])
    assert paths(template, template, user="joe") == []
    authored_since = mutated(template)[0]
    assert paths(authored_since, template, user="joe") == [], "the API server refuses the change of its specification"


def test_author_that_a_changed_template_still_has_is_not_written_again() -> None:
    stored = mutated(make_template([OWN]))[0]
    changed = json.loads(json.dumps(stored))
    changed["spec"]["metadata"]["labels"] = {"a": "b"}
    assert paths(changed, stored, user="joe") == []


def test_request_to_which_nothing_was_added_stays_as_it_is_sent_again() -> None:
    defaults = [{**WAITING[0], "match": {"deviceClasses": ["a.example.com"]}}]
    requests = [make_request(name, deviceClassName=f"{name}.example.com") for name in ("a", "b")]
    stored = mutated(make_claim(requests=requests), defaultTolerations=defaults)[0]
    assert paths(make_claim(requests=requests), stored, defaultTolerations=defaults) == [
        "add /metadata/annotations",
        f"add {NOTE}",
        "add /spec/devices/requests/0/exactly/tolerations",
    ]


def test_tolerations_that_were_not_added_by_us_are_not_put_back() -> None:
    stored = make_claim([OWN, make_toleration(key="second")])
    assert paths(make_claim([OWN]), stored) == []


def test_tolerations_that_were_changed_are_left_to_the_server_to_refuse() -> None:
    stored = mutated(make_claim([OWN]), defaultTolerations=WAITING)[0]
    changed = make_claim([make_toleration(key="changed")])
    assert [path for path in paths(changed, stored) if path.startswith("add /spec")] == []
