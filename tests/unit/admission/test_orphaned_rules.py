"""Owner references that are taken out of our controllers' rules, as `kubectl delete --cascade=orphan` has it done."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from tests.tables import table
from tests.unit.admission.guarding import allowing
from tests.unit.admission.patch_guarding import CREATED_TEXT, known
from tests.unit.admission.test_written_for_hardware import hardware
from tests.unit.admission.test_written_rules import UID, faults, genuine, owner, stored_patch
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL

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
