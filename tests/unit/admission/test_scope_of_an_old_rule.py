"""`/scope: hardware` on a rule that evicts already: its siblings get its time, so their graces run from then."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from tests.builders import DRIVER, NOW, NOW_TEXT, decoded, make_rule
from tests.tables import table
from tests.unit.admission.guarding import allowing, ask, over
from tests.unit.admission.patch_guarding import evicting
from tests.unit.admission.softened import MARKS, OPERATOR, send, softening
from tests.unit.admission.test_written_for_hardware import hardware
from tests.unit.admission.test_written_rules import ACCOUNT
from webhook.api.meta import format_time
from webhook.api.rules import EVICT, HARDWARE, SCOPE
from webhook.inventory.rule_delta import begins_to_evict

YESTERDAY: Final = NOW - timedelta(days=1)
SCOPED: Final = {SCOPE: HARDWARE}


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
        card({**annotations, **SCOPED}, effect), card(annotations, effect), impact=allowing(pods=50), user="admin"
    )
    assert (both.judged.errors, both.time) == ((), NOW_TEXT)


def test_scope_is_refused_where_the_time_stays_in_the_past() -> None:
    """As /mutate may not have answered, or the author gave another time of the past."""
    for added in (YESTERDAY, NOW - timedelta(hours=1)):
        new = card(SCOPED, added=added)
        asked = ask(new, card({}), cluster=hardware(annotations={}), impact=allowing(pods=50), patch_account=ACCOUNT)
        assert over(asked) == ["backdated"]


def test_softened_rule_that_gets_a_scope_is_softened_again_with_the_present_time() -> None:
    again = sent(card(SCOPED), card(MARKS, "NoSchedule"), impact=softening(pods=0), user=OPERATOR)
    assert (again.judged.errors, again.softened, again.time) == ((), True, NOW_TEXT)


@table(
    "new, old",
    {
        "had it before": (card(SCOPED), card(SCOPED)),
        "has it no more": (card({}), card(SCOPED)),
        "closes only": (card(SCOPED, "NoSchedule"), card({}, "NoSchedule")),
        "does nothing": (card(SCOPED, "None"), card({}, "None")),
    },
)
def test_time_stays_where_no_further_pod_is_evicted(new: Any, old: Any) -> None:
    kept = sent(new, old, impact=allowing(pods=50))
    assert (kept.judged.errors, kept.time) == ((), format_time(YESTERDAY))
    assert not begins_to_evict(decoded(new)[0], decoded(old)[0])


def test_later_time_that_comes_with_the_scope_is_kept() -> None:
    tomorrow = NOW + timedelta(days=1)
    kept = sent(card(SCOPED, added=tomorrow), card({}), impact=allowing(pods=50))
    assert (kept.judged.errors, kept.time) == ((), format_time(tomorrow))
