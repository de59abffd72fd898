from __future__ import annotations

from typing import Any

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry, make_exception
from webhook.admission.decision import Difference
from webhook.admission.policy_check import differences
from webhook.admission.rulings import Ruling
from webhook.api.field import Path
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.policy.evaluation import Evaluation
from webhook.policy.match import Scope, Target

AT = Path.root().child("spec")


def ruling(*rules: Any, path: Path = AT, what: str = "it", **fields: Any) -> Ruling:
    hits = judge_of(*rules, **fields).on_toleration(
        Scope(None, "ml", None), Target("gpu", None, admin_access=False), DeviceToleration("a", EXISTS), NOW, dict
    )
    return Ruling(Evaluation.of(hits), lambda: path, lambda: what)


QUIET = ruling()
DENIED = ruling(make_entry("denies", "deny"))
WARNED = ruling(make_entry("warns", "warn"))
NOTED = ruling(make_entry("notes", "audit"))
ALLOWED = ruling(make_entry("allows", "allow"))
WARNED_AND_DENIED = ruling(make_entry("warns", "warn"), make_entry("denies", "deny"))
EXCUSED = ruling(make_entry("denies", "deny"), exceptions=[make_exception("excused", ["denies"])])


@table(
    "active, candidate, expected",
    {
        "the candidate refuses": (QUIET, DENIED, ("denies", "denied")),
        "the candidate refuses what a rule allows": (ALLOWED, DENIED, ("denies", "denied")),
        "the candidate refuses what was warned of": (WARNED, WARNED_AND_DENIED, ("denies", "denied")),
        "the candidate allows": (DENIED, QUIET, ("denies", "allowed")),
        "the candidate has an exception": (DENIED, EXCUSED, ("denies", "allowed")),
        "the candidate only warns": (DENIED, WARNED, ("denies", "allowed")),
        "the candidate warns": (QUIET, WARNED, ("warns", "warned")),
        "the candidate only notes": (WARNED, NOTED, ("warns", "silent")),
        "what is noted is for nobody to see": (QUIET, NOTED, None),
        "both allow": (QUIET, ALLOWED, None),
        "both refuse": (DENIED, WARNED_AND_DENIED, None),
        "an exception allows": (QUIET, EXCUSED, None),
    },
)
def test_difference_is_told_by_the_rule_that_makes_it(active: Ruling, candidate: Ruling, expected: Any) -> None:
    found = list(differences([active], [candidate]))
    assert [(each.rule, each.change) for each in found] == ([] if expected is None else [expected])


def test_what_only_one_of_them_speaks_of_was_allowed_by_the_other() -> None:
    assert list(differences([], [DENIED])) == [Difference("spec", "it", "denies", "denied")]  # type: ignore[arg-type]
    assert list(differences([DENIED], [])) == [Difference("spec", "it", "denies", "allowed")]  # type: ignore[arg-type]


def test_each_thing_is_compared_with_itself() -> None:
    elsewhere = ruling(make_entry("denies", "deny"), path=AT.index(1))
    other = ruling(make_entry("denies", "deny"), what="another")
    assert list(differences([DENIED, elsewhere, other], [other, elsewhere, DENIED])) == []
    assert [each.path for each in differences([DENIED], [elsewhere])] == ["spec", "spec[1]"]


def test_what_they_agree_on_is_passed_over() -> None:
    second, third = (ruling(make_entry("denies", "deny"), path=AT.index(at)) for at in (1, 2))
    assert [each.path for each in differences([DENIED], [DENIED, second, third])] == ["spec[1]", "spec[2]"]
