"""Who owns which rules, also where labels were edited by hand."""

from __future__ import annotations

import pytest

from tests.unit.patches.fake_cluster import CLOSED
from webhook.api.meta import ObjectMeta
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, DeviceSelector, DeviceTaintRule
from webhook.patches.book import RuleBook
from webhook.patches.stored import StoredRule


@pytest.mark.parametrize("other", ["u", "w"])
def test_rule_with_both_labels_comes_and_goes(other: str) -> None:
    """Anyone who may write rules can set them."""
    book = RuleBook()
    rule = DeviceTaintRule(ObjectMeta("r", uid="r1"), DeviceSelector(), CLOSED)
    stored = StoredRule(rule, {PATCH_LABEL: "u", HARDWARE_LABEL: other})
    owners = list(dict.fromkeys(["u", other]))
    assert book.put_rule("r", stored) == owners
    assert [list(book.owned(uid)) for uid in owners] == [[stored]] * len(owners)
    assert book.put_rule("r", None) == owners
    assert [list(book.owned(uid)) for uid in owners] == [[]] * len(owners)
