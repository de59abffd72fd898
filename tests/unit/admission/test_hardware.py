"""Parts of the same hardware that stay in service: in the answer to a rule or a slice, and in the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_admission_request,
    make_claim,
    make_consumer,
    make_context,
    make_device,
    make_result,
    make_rule,
    make_slice,
    make_status,
    make_taint,
)
from tests.tables import table
from tests.unit.admission.guarding import held
from webhook.admission.chain import validate
from webhook.admission.context import Budget
from webhook.admission.decision import WARNING_MAX
from webhook.admission.impact_text import annotation_of, measured_in, siblings_text
from webhook.inventory.hardware import NO_SIBLINGS, Sibling, Siblings
from webhook.inventory.impact import Impact
from webhook.inventory.state import Inventory, Sight
from webhook.policy.model import PolicyMode

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

COUNTERS: Final = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}]
NAMES: Final = ("gpu-0", "mig-0", "mig-1", "mig-2", "mig-3")
STAY: Final = "4 other devices of the same hardware stay in service"
IN_USE: Final = f"{STAY}, 3 of them in use by pods ml/a, ml/b, ml/c"


def gpu(*tainted: str, effect: str = "NoExecute") -> Any:
    """A GPU with four partitions; some of them have a taint."""
    taints = [make_taint(effect=effect, timeAdded=NOW_TEXT)]
    return make_slice(
        [make_device(name, taints if name in tainted else None, consumesCounters=COUNTERS) for name in NAMES]
    )


def users() -> list[Any]:
    """Pods on three of the partitions."""
    claims = []
    for number, name in enumerate("abc"):
        status = make_status(make_result(device=f"mig-{number}"))
        status["reservedFor"] = [make_consumer(name)]
        claims.append(make_claim(meta={"name": name, "namespace": "ml"}, status=status))
    return claims


def rule(effect: str = "NoExecute", name: str = "new", **selector: str) -> Any:
    selected = selector or {"driver": DRIVER, "device": "gpu-0"}
    return make_rule(meta={"name": name}, selector=selected, taint=make_taint(effect=effect))


def answer(new: Any, inventory: Inventory, old: Any = None, **options: Any) -> Decision:
    return validate(make_admission_request(new, old), make_context(sight=Sight(inventory), **options))


def sibling_texts(decision: Decision, mark: str) -> list[str]:
    return [
        finding.error.detail
        for finding in decision.findings
        if mark in (finding.code, finding.rule) and "hardware" in finding.error.detail
    ]


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_rule_on_a_full_device_names_the_pods_on_its_partitions(effect: str) -> None:
    decision = answer(rule(effect), held(gpu(), *users()))
    assert decision.allowed
    assert sibling_texts(decision, "DT205") == [IN_USE]
    assert sibling_texts(decision, "impact") == []
    assert any(each.endswith(f"{IN_USE} [DT205]") for each in decision.warnings)
    assert decision.annotations["impact"].endswith(" podGroups=0 siblings=4 siblingPods=3")


@table("new", {"the whole driver": rule(driver=DRIVER), "no device": rule(driver=DRIVER, device="gpu-7")})
def test_nothing_is_said_where_no_sibling_stays(new: Any) -> None:
    decision = answer(new, held(gpu(), *users()))
    assert sibling_texts(decision, "DT205") == []
    assert "sibling" not in decision.annotations.get("impact", "")


def test_a_rule_that_does_nothing_is_judged_only_in_the_audit_log() -> None:
    decision = answer(rule("None"), held(gpu(), *users()))
    assert sibling_texts(decision, "DT205") == []
    assert decision.annotations["impact"].endswith(" siblings=4 siblingPods=3 simulated")


def test_what_other_rules_close_is_left_out() -> None:
    inventory = held(gpu(), *users(), rule(name="stored", device="mig-0"))
    expected = "3 other devices of the same hardware stay in service, 2 of them in use by pods ml/b, ml/c"
    assert sibling_texts(answer(rule(), inventory), "DT205") == [expected]


def test_an_update_that_changes_nothing_is_not_warned_of_again() -> None:
    assert sibling_texts(answer(rule(), held(gpu(), *users()), rule()), "DT205") == []


def test_new_taint_in_a_slice_is_told_likewise() -> None:
    decision = answer(gpu("gpu-0"), held(gpu(), *users()), gpu())
    assert sibling_texts(decision, "impact") == [IN_USE]
    assert decision.annotations["impact"].endswith(" siblings=4 siblingPods=3")
    assert sibling_texts(answer(gpu(*NAMES), held(gpu(), *users()), gpu()), "impact") == []


def test_lint_and_guard_stop_in_time() -> None:
    inventory = held(gpu(), *users())
    phases: list[str] = []

    class Counting(Budget):
        def check(self, phase: str) -> None:
            phases.append(phase)

    def checks(selected: str, mode: PolicyMode) -> tuple[int, int]:
        phases.clear()
        answer(rule(device=selected), inventory, budget=Counting(60.0, lambda: 0.0), mode=mode)
        return phases.count("lint"), phases.count("impact")

    (lint_alone, _), (less_lint, _) = (checks(each, PolicyMode.OFF) for each in ("gpu-0", "gpu-7"))
    assert lint_alone > less_lint
    (lint, guard), (_, less_guard) = (checks(each, PolicyMode.ENFORCE) for each in ("gpu-0", "gpu-7"))
    assert guard > less_guard
    assert lint < lint_alone, "siblings are looked for once"


def part(number: int, pods: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Sibling:
    return Sibling(DRIVER, "node-0", f"mig-{number}", (), pods, groups)


@table(
    "parts, text",
    {
        "none": ((), ""),
        "one": ((part(0),), "1 other device of the same hardware stays in service; no pod uses it"),
        "two": ((part(0), part(1)), "2 other devices of the same hardware stay in service; no pod uses them"),
        "used": ((part(0, ("ml/a",)),), "1 other device of the same hardware stays in service, in use by pod ml/a"),
        "pods and a PodGroup": (
            (part(0, ("ml/b", "ml/a")), part(1, ("ml/a",), ("ml/g",)), part(2)),
            (
                "3 other devices of the same hardware stay in service, "
                "2 of them in use by pods ml/a, ml/b and PodGroup ml/g"
            ),
        ),
        "PodGroups": (
            (part(0, (), ("ml/g", "ml/h")),),
            "1 other device of the same hardware stays in service, in use by PodGroups ml/g, ml/h",
        ),
    },
)
def test_siblings_in_words(parts: tuple[Sibling, ...], text: str) -> None:
    assert siblings_text(Siblings(parts)) == text


def test_many_long_names_make_no_long_warning() -> None:
    pods = tuple([f"{'n' * 63}/{number}{'p' * 200}" for number in range(1000)])
    assert len(siblings_text(Siblings((part(0, pods),)))) < 4 * 300
    claims = make_claim(meta={"name": "a", "namespace": "n" * 63}, status=make_status(make_result(device="mig-0")))
    claims["status"]["reservedFor"] = [make_consumer(f"{number}{'p' * 200}") for number in range(100)]
    (warning,) = [each for each in answer(rule(), held(gpu(), claims)).warnings if "DT205" in each]
    assert len(warning) <= WARNING_MAX
    assert STAY in warning


def test_audit_annotation_has_siblings_only_if_there_are_some() -> None:
    with_some = annotation_of(Impact(siblings=Siblings((part(0, ("ml/a", "ml/b")),))), acts=True, over=())
    assert "sibling" not in annotation_of(Impact(siblings=NO_SIBLINGS), acts=True, over=())
    assert with_some.endswith(" siblings=1 siblingPods=2")
    assert measured_in(with_some).figures["siblingPods"] == 2
