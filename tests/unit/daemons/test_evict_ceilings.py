"""By what the worker's ceilings are: the code of a rule, that of a patch, or limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import rule
from tests.unit.eviction.patched import part, patch
from webhook.admission.confirmation import ImpactToConfirm, Numbers, make_code
from webhook.admission.patch_code import patch_code_about
from webhook.api.rules import CONFIRM_IMPACT
from webhook.config.evict import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.ports import Ceiling

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 32
HIT = ImpactToConfirm(Numbers(30, 20, 10, 3), frozenset(), frozenset())
BY_LIMITS = Ceiling(50, 10, confirmed=False)


def worker_of(folder: Path) -> Worker:
    """A worker without a cluster, in mode observe: it takes codes as they are written."""
    return Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}", "--mode=observe"], {}))


def test_code_of_a_patch_is_the_ceiling_of_its_rules(tmp_path: Path) -> None:
    """With the tolerance of the policy, which is 10 % without one."""
    worker, whole = worker_of(tmp_path), patch()
    assert worker._patch_ceiling_of(part(0), whole) == BY_LIMITS
    code = make_code(patch_code_about(whole, NOW), HIT, "jane", NOW, KEY)
    coded = structs.replace(whole, meta=structs.replace(whole.meta, annotations={CONFIRM_IMPACT: code}))
    assert worker._patch_ceiling_of(part(0), coded) == Ceiling(11, 3)
    assert worker._ceiling_of(part(0)) == BY_LIMITS, "by its own code, as any rule"
    assert worker._ceiling_of(rule(annotations={CONFIRM_IMPACT: code})) == Ceiling(11, 3)


def test_patch_that_is_not_known_has_no_code_and_the_ceiling_says_why(tmp_path: Path) -> None:
    found = worker_of(tmp_path)._patch_ceiling_of(part(0), None)
    assert found == BY_LIMITS._replace(
        code_problem="the patch is not known: resourceslicepatches not read yet",
    )


def test_patches_are_looked_for_and_readiness_does_not_depend_on_them(tmp_path: Path) -> None:
    worker = worker_of(tmp_path)
    worker.stages()
    assert dict(worker._checks.notes())["patches"] == "resourceslicepatches not read yet"
    assert "patches" not in dict(worker._checks.problems())
    assert dict(worker._patches.patches()) == {}
    worker._on_patch(None, patch())
