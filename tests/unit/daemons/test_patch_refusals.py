"""Rules of patches that an API server or a webhook refuses, and writes that fail."""

from __future__ import annotations

from tests.unit.daemons.test_patch_controller import BIG, two_pools
from tests.unit.patches.fake_cluster import CLOSED, gpu, part, play, scoped
from tests.unit.patches.patched import DRIVER, slice_of


def test_refusal_is_a_condition_and_nothing_is_deleted() -> None:
    cluster = two_pools()
    cluster.patch("one", cel=[BIG], taints=[CLOSED])

    def refuse() -> None:
        cluster.refuses = lambda write: 'admission webhook "x" denied the request: too many' if write.creates else ""
        cluster.log.clear()
        cluster.slices(slice_of(gpu("a", 20), gpu("b"), pool="p", generation=2, name=f"{DRIVER}-p-1"))

    play(cluster, refuse)
    assert cluster.log == ["status one"]
    expanded = cluster.conditions("one")["Expanded"]
    assert expanded == ("False", "RuleRefused", 'admission webhook "x" denied the request: too many')
    assert cluster.patches["one"].status.tainted_devices == 3
    assert cluster.patches["one"].status.rules == 3


def test_failure_is_tried_again() -> None:
    cluster = two_pools()
    failures = iter(["503", "503"])
    cluster.fails = lambda _: next(failures, "")
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])

    def wait() -> None:
        assert cluster.conditions("one")["Expanded"] == ("False", "WriteFailed", "503")

    play(cluster, wait, 0.6, 0.6)
    assert len(cluster.rules) == 1
    assert cluster.conditions("one")["Expanded"][0] == "True"


def test_refused_rule_is_tried_again_soon_as_the_webhook_may_not_know_the_patch_yet() -> None:
    cluster = two_pools()
    cluster.refuses = lambda _: 'admission webhook "x" denied the request: there is no such patch'
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])

    def known() -> None:
        assert cluster.conditions("one")["Expanded"][1] == "RuleRefused"
        cluster.refuses = lambda _: ""

    play(cluster, known, 2.1)  # the status that was written is a reason to look once more
    assert cluster.conditions("one")["Expanded"][0] == "True"


def test_refusals_of_an_owner_begin_again_with_its_next_generation() -> None:
    """By the waits that are asked for. The status of a patch that was written is a reason to look once more."""
    cluster = two_pools()
    cluster.refuses = lambda _: "denied"
    waits: list[tuple[str, float]] = []
    queue = cluster.controller._queue

    def add_after(item: str, seconds: float) -> None:
        waits.append((item, seconds))

    queue.add_after = add_after  # type: ignore[method-assign]
    stored = cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    cluster.rule("faulty", scoped())
    cluster.slices(slice_of(part("full"), part("half"), pool="p", generation=2, name=f"{DRIVER}-p-1"))
    again = [
        lambda: queue.add(stored.meta.uid),
        lambda: cluster.patch("one", driver=DRIVER, pool="p", taints=[CLOSED]),
        lambda: queue.add("uid-faulty"),
        lambda: cluster.edit("faulty", generation=2),
    ]
    play(cluster, *again)
    assert [seconds for uid, seconds in waits if uid == stored.meta.uid] == [1, 2, 4, 1, 2]
    assert [seconds for uid, seconds in waits if uid == "uid-faulty"] == [1, 2, 1]
