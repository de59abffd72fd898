"""What the worker makes of its policy: ceilings, by confirmations or limits; and what its Lease says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from tests.unit.eviction.objects import rule
from tests.unit.eviction.patched import part, patch
from webhook.admission.confirmation import ImpactToConfirm, Numbers, digest_of, text_of
from webhook.api.rules import CONFIRM_IMPACT
from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.ports import Ceiling
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.model import Policy

if TYPE_CHECKING:
    from pathlib import Path

HIT = ImpactToConfirm(Numbers(30, 20, 10, 3))
BY_LIMITS = Ceiling(50, 10, confirmed=False)
ANOTHER = "it was printed for another object, or for this one before it was changed"


def worker_of(folder: Path) -> Worker:
    """A worker without a cluster, in mode observe."""
    return Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}", "--mode=observe"], {}))


def confirmed(judged: Any, hit: ImpactToConfirm = HIT) -> Any:
    text = text_of(hit, digest_of(judged, judged.meta.name, None))
    return structs.replace(judged, meta=structs.replace(judged.meta, annotations={CONFIRM_IMPACT: text}))


def test_lease_says_which_policy_is_in_use_and_which_was_the_last(tmp_path: Path) -> None:
    """H2: what is no longer written stays on the Lease, so `doctor` sees that a policy is gone."""
    worker = worker_of(tmp_path)

    def told(policy: Policy) -> dict[str, str]:
        worker._policies.use(Judge(policy))
        return {name: text for name, text in worker._on_lease.items() if "policy" in name}

    assert told(Policy(hash="abc")) == {"devicetaint.io/policy": "abc", "devicetaint.io/last-policy": "abc"}
    worker._policies.reject("it is broken")
    assert worker._on_lease["devicetaint.io/policy"] == "abc"
    assert told(BUILTIN_JUDGE.policy) == {"devicetaint.io/policy": "builtin"}


def test_policy_of_an_earlier_process_leaves_the_lease_with_the_first_one_that_follows_none(tmp_path: Path) -> None:
    words = [
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        "--mode=observe",
        "--policy-file",
        str(tmp_path / "policy.yaml"),
    ]
    annotations = Worker(parse_evict("evict", words, {}))._on_lease
    assert (annotations["devicetaint.io/policy"], annotations["devicetaint.io/last-policy"]) == ("", "")


def test_confirmation_of_a_patch_is_the_ceiling_of_its_rules(tmp_path: Path) -> None:
    """With the tolerance of the policy, which is 10 % without one, rounded up, and what was done before."""
    worker, whole = worker_of(tmp_path), patch()
    assert worker._patch_ceiling_of(part(0), whole) == BY_LIMITS
    assert worker._patch_ceiling_of(part(0), confirmed(whole)) == Ceiling(11, 4)
    assert worker._patch_ceiling_of(part(0), confirmed(whole, HIT._replace(done=96))) == Ceiling(107, 4)
    assert worker._ceiling_of(part(0)) == BY_LIMITS, "by its own, as any rule"
    assert worker._ceiling_of(confirmed(rule())) == Ceiling(11, 4)


def test_text_that_does_not_count_is_no_ceiling(tmp_path: Path) -> None:
    worker, plain = worker_of(tmp_path), rule()
    other = structs.replace(plain, meta=confirmed(rule("other")).meta)
    assert worker._ceiling_of(structs.replace(other, meta=structs.replace(other.meta, name="rule"))) == (
        BY_LIMITS._replace(text_problem=ANOTHER)
    )
    old = rule(annotations={CONFIRM_IMPACT: "v1.9999999999.8.4.4.1." + "A" * 38})
    assert worker._ceiling_of(old) == BY_LIMITS._replace(text_problem="it cannot be read")
    assert worker._ceiling_of(rule(annotations={CONFIRM_IMPACT: ""})) == BY_LIMITS


def test_patch_that_is_not_known_has_no_text_and_the_ceiling_says_why(tmp_path: Path) -> None:
    found = worker_of(tmp_path)._patch_ceiling_of(part(0), None)
    assert found == BY_LIMITS._replace(
        text_problem="the patch is not known: resourceslicepatches not read yet",
    )


def test_patches_are_looked_for_and_readiness_does_not_depend_on_them(tmp_path: Path) -> None:
    worker = worker_of(tmp_path)
    worker.stages()
    assert dict(worker._checks.notes())["patches"] == "resourceslicepatches not read yet"
    assert "patches" not in dict(worker._checks.problems())
    assert dict(worker._patches.patches()) == {}
    worker._patches.reflector._store.upsert(patch())
