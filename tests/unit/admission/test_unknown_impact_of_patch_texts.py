"""Texts that confirm a patch whose impact is not known, though the cluster is."""

from __future__ import annotations

import re
from typing import Any, Final

from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing
from tests.unit.admission.patch_guarding import SlowMemo, ask_patch, evicting, known, patching
from webhook.policy.model import PolicyMode

CLASS: Final[dict[str, tuple[str, ...]]] = {"gpu": ("true",)}
FILTER: Final = {"deviceClassName": "gpu"}
NOT_FOLLOWED: Final = "this webhook does not follow patches"


def text() -> str:
    asked = ask_patch(patching(FILTER), patches=known(classes=CLASS), impact=allowing(pods=3))
    found = re.search(r'"(v1 [^"]+)"', str(asked.errors[0]))
    assert found is not None
    return found.group(1)


@table(
    "effect, options, why",
    {
        "no such class": ("NoExecute", {}, "gpu"),
        "too slow": ("NoExecute", {"patches": known(classes=CLASS, memo=SlowMemo())}, "longer than a review"),
        "not followed": ("NoExecute", {"patches": known(unknown=NOT_FOLLOWED)}, NOT_FOLLOWED),
        "no cluster": ("NoExecute", {"cluster": UNKNOWN}, "claims were not read yet"),
        "does not act": ("None", {}, "gpu"),
        "mode off": ("NoExecute", {"mode": PolicyMode.OFF}, "gpu"),
    },
)
def test_refused_text_says_why_the_impact_is_not_known(effect: str, options: dict[str, Any], why: str) -> None:
    decision = ask_patch(
        patching(FILTER, evicting(effect=effect), text=text()), **{"impact": allowing(pods=3), **options}
    )
    (said,) = re.findall("cannot be compared with the impact: (.*); try again in a while", str(decision.errors[-1]))
    assert why in said
