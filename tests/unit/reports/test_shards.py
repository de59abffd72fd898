"""The place of a subject among the objects of reports."""

from __future__ import annotations

from tests.unit.reports.finding import make_finding, make_subject
from webhook.reports.shards import BITS_MOST, SizedFinding, place_of, shards


def test_place_of_a_subject_is_the_same_in_every_process() -> None:
    """Another leader, or a later release, must not rewrite every report."""
    assert place_of(make_subject()) == "00011011110010001100010101100111"
    assert place_of(make_subject("d", "")) == "11000000000001100100111001100111"
    assert len(place_of(make_subject())) == BITS_MOST


def test_place_of_a_subject_that_is_created_again_stays() -> None:
    assert place_of(make_subject(uid="other")) == place_of(make_subject())


def test_findings_of_an_object_are_in_the_order_of_their_places() -> None:
    """A split then leaves both halves in the order that they had."""
    [(_, part)] = shards([SizedFinding(make_finding(name), 1) for name in "abcdefgh"], 8)
    subjects = [each.finding.subject for each in part]
    assert [place_of(each) for each in subjects] == sorted(place_of(each) for each in subjects)
    assert [each.name for each in subjects] != list("abcdefgh")
