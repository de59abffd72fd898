"""Specs that an update must not change: labels count by the letter, quantities by their number (L-11)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.builders import field_errors, make_request, make_template
from tests.tables import table

IMMUTABLE = ['spec: Invalid value: "": field is immutable']


def labelled(kind: str, **labels: str) -> Any:
    template = make_template()
    template["spec"]["metadata"] = {kind: labels}
    return template


@table(
    "old, new",
    {
        "with a default's name": ({"operator": "Equal"}, {}),
        "without a value": ({"team": "a"}, {"team": "a", "x": ""}),
    },
)
def test_labels_and_annotations_of_a_template_cannot_change(old: Any, new: Any) -> None:
    for kind in ("labels", "annotations"):
        assert field_errors(labelled(kind, **new), labelled(kind, **old)) == IMMUTABLE
        assert field_errors(labelled(kind, **old), labelled(kind, **new)) == IMMUTABLE


def test_no_labels_are_like_an_empty_map() -> None:
    assert field_errors(labelled("labels"), make_template()) == []


@table(
    "old, new, same",
    {
        "with another suffix": ("1Gi", "1024Mi", True),
        "as a number": ("1", 1, True),
        "another number": ("1Gi", "1G", False),
        "one that is none": ("1x", "1y", False),
    },
)
def test_quantities_of_a_request_are_the_same_if_their_numbers_are(old: Any, new: Any, *, same: bool) -> None:
    before = make_template(requests=[make_request(capacity={"requests": {"operator": old}})])
    after = deepcopy(before)
    after["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["operator"] = new
    assert ("field is immutable" in "".join(field_errors(after, before))) is not same
