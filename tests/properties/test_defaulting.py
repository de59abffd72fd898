"""Laws of what `/mutate` sets."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.builders import (
    EARLIER_TEXT,
    NOW,
    NOW_TEXT,
    decoded,
    make_admission_request,
    make_context,
    make_rule,
    make_taint,
)
from tests.properties.strategies import NEARLY_RIGHT, NOW_IN_ANOTHER_ZONE, RIGHT, nearly_right, right
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import apply_patch
from webhook.api.meta import format_time
from webhook.api.rules import EVICT, DeviceTaintRule
from webhook.policy.model import PolicyMode

if TYPE_CHECKING:
    from datetime import datetime

CONTEXT = make_context(offline=True, mode=PolicyMode.WARN)
OLD_TEXT = "2026-05-01T00:00:00Z"
MINUTE = timedelta(seconds=60)
bumping = st.builds(lambda bump: make_context(bump_slice_time_added=bump), st.booleans())


@st.composite
def _updates(draw: st.DrawFn) -> tuple[Any, Any]:
    """A new object and the old one: of the same kind, the very same, or none."""
    chosen = draw(st.sampled_from([NEARLY_RIGHT, RIGHT]))
    kind = chosen[draw(st.sampled_from(list(chosen)))]
    new = draw(kind)
    how = draw(st.sampled_from(["created", "unchanged", "changed"]))
    if how == "changed":
        return new, draw(kind)
    return new, copy.deepcopy(new) if how == "unchanged" else None


updates = _updates()


@given(right)
def test_valid_stays_valid(manifest: Any) -> None:
    before = validate(make_admission_request(manifest), CONTEXT)
    assert before.errors == ()
    patched = apply_patch(manifest, mutate(make_admission_request(manifest), CONTEXT).patch)
    assert validate(make_admission_request(patched), CONTEXT).errors == ()


@given(updates, bumping)
def test_defaulting_changes_no_verdict(pair: Any, context: Any) -> None:
    """What is stored has times, and what an API server hands over for it: without one it would be another taint."""
    new, old = pair
    assume(_holds_no_broken_parent(new))
    if old is not None:
        assume(_holds_no_broken_parent(old))
        new, old = _defaulted(new), _defaulted(old)
    patched = apply_patch(new, mutate(make_admission_request(new, old), context).patch)
    for rules in PolicyMode:
        judged = make_context(documented_rules=rules)
        before = validate(make_admission_request(new, old), judged)
        after = validate(make_admission_request(patched, old), judged)
        assert [str(error) for error in before.errors] == [str(error) for error in after.errors]


def _holds_no_broken_parent(manifest: Any) -> bool:
    """What has wrong types is not defaulted, and so no test of defaulting."""
    return not decoded(manifest)[1]


def _evicting(effect: str = "NoSchedule", time: str = EARLIER_TEXT) -> Any:
    return make_rule(taint=make_taint(effect=effect, time_added=time), annotations={EVICT: "true"})


@given(updates, bumping, st.integers(0, 59))
@example((_evicting("None"), None), CONTEXT, 31)
@example((_evicting(), None), CONTEXT, 31)
@example((_evicting(), None), CONTEXT, 30)
@example((_evicting(time=OLD_TEXT), None), CONTEXT, 59)
@example((_evicting(), make_rule(taint=make_taint(time_added=OLD_TEXT))), CONTEXT, 31)
def test_defaulting_twice_is_defaulting_once(pair: Any, context: Any, seconds: int) -> None:
    """Also when the second time comes a little later, as an API server may ask again.

    Unless the stored time is this very second: then a changed effect looks as if it kept its time (D-4). And an
    eviction that is asked for begins at most a minute ago, by the clock of each pass: a time that was sent, and
    that was within the minute the first time but not the second time, is set then.
    """
    new, old = pair
    assume(not seconds or not any(time in json.dumps(old) for time in (NOW_TEXT, NOW_IN_ANOTHER_ZONE)))
    patched = apply_patch(new, mutate(make_admission_request(new, old), context).patch)
    later = make_context(
        now=NOW + timedelta(seconds=seconds), bump_slice_time_added=context.policy.bump_slice_time_added
    )
    again = mutate(make_admission_request(patched, old), later).patch
    if not _has_grown_old(patched, old, later.now):
        assert again == ()
    else:
        (operation,) = again
        assert (operation["path"], operation["value"]) == ("/spec/taint/timeAdded", format_time(later.now))


def _has_grown_old(manifest: Any, old: Any, now: datetime) -> bool:
    """Whether a new eviction began within the minute before NOW, and earlier than a minute before `now`."""
    rule, stored = decoded(manifest)[0], None if old is None else decoded(old)[0]
    if not isinstance(rule, DeviceTaintRule) or rule.meta.annotations.get(EVICT) != "true":
        return False
    if isinstance(stored, DeviceTaintRule) and stored.meta.annotations.get(EVICT) == "true":
        return False
    added = rule.taint.time_added
    assert added is not None, "defaulting has set it"
    return NOW - MINUTE <= added < now - MINUTE


@given(nearly_right | right)
def test_patch_gives_the_defaulted_object(manifest: Any) -> None:
    """Against defaulting spelt out as what an API server's decoder does to an object without history."""
    annotations = (
        (manifest.get("metadata") or {}).get("annotations") if isinstance(manifest.get("metadata"), dict) else {}
    )
    assume(not decoded(manifest)[1])
    assume(not isinstance(annotations, dict) or annotations.get("devicetaint.io/evict") != "true")
    patch = mutate(make_admission_request(manifest), CONTEXT).patch
    assert decoded(apply_patch(manifest, patch)) == decoded(_defaulted(manifest))


def _defaulted(manifest: Any) -> Any:
    document = copy.deepcopy(manifest)
    kind, spec = document["kind"], document.get("spec") or {}
    if kind == "DeviceTaintRule":
        document["spec"] = spec
        spec["taint"] = spec.get("taint") or {}
        _default_taints([spec["taint"]])
    elif kind == "ResourceSlice":
        for device in spec.get("devices") or ():
            basic = (device or {}).get("basic")
            content = device or {} if basic is None else basic
            _default_taints(content.get("taints") or ())
        spec["taints"] = [entry or {} for entry in spec.get("taints") or ()]
        for entry in spec["taints"]:
            entry["taint"] = entry.get("taint") or {}
            _default_taints([entry["taint"]])
    elif kind == "ResourceSlicePatch":
        _default_taints((spec.get("devices") or {}).get("taints") or ())
    else:
        claim = (spec.get("spec") or {}) if kind == "ResourceClaimTemplate" else spec
        for request in (claim.get("devices") or {}).get("requests") or ():
            fields = request or {}
            exact = request if fields.get("exactly") is None else fields["exactly"]
            for holder in (exact, *(fields.get("firstAvailable") or ())):
                _default_operators(holder)
        allocation = (document.get("status") or {}).get("allocation") if kind == "ResourceClaim" else None
        for result in ((allocation or {}).get("devices") or {}).get("results") or ():
            _default_operators(result)
    return document


def _default_taints(taints: Any) -> None:
    for position, taint in enumerate(taints):
        if taint is None:
            taints[position] = {"timeAdded": NOW_TEXT}
        elif taint.get("timeAdded") is None:
            taint["timeAdded"] = NOW_TEXT


def _default_operators(holder: Any) -> None:
    tolerations = (holder or {}).get("tolerations") or []
    for position, toleration in enumerate(tolerations):
        if toleration is None:
            tolerations[position] = {"operator": "Equal"}
        elif not toleration.get("operator"):
            toleration["operator"] = "Equal"


# --- the patch itself, carried out by the letter of RFC 6902 --------------------------------------


def carried_out(document: Any, operations: Any) -> Any:
    """`add` and `replace` as the RFC has them: add inserts into lists, and a parent has to be there."""
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        at = document
        for step in parents:
            at = at[int(step)] if isinstance(at, list) else at[step]
        assert isinstance(at, (dict, list))
        if isinstance(at, dict):
            assert operation["op"] == "add" or last in at
            at[last] = operation["value"]
        elif operation["op"] == "add":
            assert int(last) <= len(at)
            at.insert(int(last), operation["value"])
        else:
            at[int(last)] = operation["value"]
    return document


@given(updates, bumping)
def test_patch_means_to_an_api_server_what_it_means_to_us(pair: Any, context: Any) -> None:
    new, old = pair
    untouched = copy.deepcopy(new)
    patch = mutate(make_admission_request(new, old), context).patch
    assert carried_out(new, patch) == apply_patch(new, patch)
    assert new == untouched
