"""Writes decisions.txt, a digest of each answer to 20,000 reviews: `python -m tests.golden.decisions`.

`python -m tests.golden.decisions SEED` prints a review with its answers, at this commit or at the one before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.builders import DRIVER, make_context
from tests.golden.digests import Digests
from tests.golden.dumps import POLICIES
from tests.golden.reviews import NODES, review
from tests.unit.admission.patch_guarding import CREATED_TEXT, FIRST, known, patching, racks
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import encode_response
from webhook.api.field import Path as FieldPath
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.document import load
from webhook.policy.match import KnownNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.admission.context import AdmissionContext

_SMALL: Final = {
    "impact": {
        "limits": [
            {"requesters": {"groups": ["gpu-admins"]}, "action": "soften", "pods": 1},
            {"pods": 2, "devices": 6},
        ],
        "twoStep": True,
        "breakGlassGroups": ["system:masters"],
    }
}
"""A policy of limits that a fleet this small is over."""


def contexts() -> list[AdmissionContext]:
    """One for each shipped policy, one with small limits, and one that does not know the cluster."""
    documents = [yaml.safe_load(each.read_text()) for each in POLICIES]
    head = {name: documents[0][name] for name in ("apiVersion", "kind")}
    cluster = racks(NODES, lambda number: ("ml", "kube-system", "ci-builds")[number % 3])
    labels = {"team-climate": {"dedicated.example.com/team": "climate"}}
    stored = patching({"driver": DRIVER, "pool": "node-0"}, name="b", uid="uid", created=CREATED_TEXT, priority=4)
    common: dict[str, Any] = {
        "names": KnownNames(
            {name: labels.get(name, {}) for name in ("ml", "ci-forks", "ci-builds", "kube-system", "team-climate")},
            {DRIVER: frozenset({DRIVER}), "gpu.vendor.example": frozenset({"gpu.vendor.example"})},
        ),
        "patches": known([stored], {DRIVER: (FIRST,), "fpga.example.com": ("false",)}),
    }
    known_to_it = [
        make_context(judge=_judge(each), sight=Sight(cluster), **common) for each in (*documents, head, head | _SMALL)
    ]
    return [*known_to_it, make_context(judge=_judge(head | _SMALL), sight=Sight(None, "not read yet"))]


def _judge(document: Any) -> Judge:
    loaded = load(document, FieldPath.root())
    assert loaded.policy is not None, loaded.errors
    return Judge(loaded.policy)


def told(seeds: Iterable[int]) -> Iterator[str]:
    """Each review, and what /mutate and /validate answer; reviews take turns with the contexts."""
    known_contexts = contexts()
    for seed in seeds:
        at = seed % len(known_contexts)
        made, context = review(seed), known_contexts[at]
        request = made.request()
        both = encode_response(request, mutate(request, context)), encode_response(request, validate(request, context))
        answers = [json.loads(each)["response"] for each in both]
        yield f"context {at}:\n{json.dumps(made)}\n{json.dumps(answers, indent=1)}"


DECISIONS: Final = Digests(Path(__file__).with_name("decisions.txt"), 20_000, told)

if __name__ == "__main__":
    DECISIONS.main(sys.argv[1:])
