"""Devices that go from one patch to another are never without the taint, also where something goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, FakeCluster, gpu, play
from tests.unit.patches.patched import DRIVER, slice_of
from webhook.cluster.patch_writer import WriteAnswer

if TYPE_CHECKING:
    from webhook.patches.stored import StoredRule

BIG: Final = 'device.attributes["gpu.example.com"].memory > 40'
X: Final = structs.replace(CLOSED, value="x")


def one_pool() -> FakeCluster:
    cluster = FakeCluster()
    cluster.slices(slice_of(gpu("a"), gpu("b"), gpu("c", 20), pool="p"))
    return cluster


def closed(cluster: FakeCluster) -> bool:
    return any(device in (None, "a") for _, _, device, _ in cluster.selectors())


def test_rule_stays_while_those_that_take_its_place_are_refused() -> None:
    """As when the webhook does not know yet that the other patch wins by now."""
    cluster = one_pool()
    cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[CLOSED])
    seen: list[bool] = []

    def other() -> None:
        cluster.refuses = lambda write: "another patch wins" if write.owner and write.owner.name == "two" else ""
        cluster.after_delete = lambda _: seen.append(closed(cluster))
        cluster.patch("two", driver=DRIVER, priority=1, taints=[X])

    def looked_at_again() -> None:
        assert closed(cluster)
        [name] = cluster.rules
        text = f"rule {name} stays, as patch two lacks rules for its devices"
        assert cluster.conditions("one")["Expanded"] == ("False", "RuleRefused", text)
        cluster.controller.look_at_patches(["one"])

    def accepted() -> None:
        assert closed(cluster)
        cluster.refuses = lambda _: ""

    play(cluster, other, looked_at_again, accepted, 2.1)
    assert seen == [True]
    assert cluster.selectors() == {(DRIVER, None, None, "x")}
    assert cluster.conditions("one")["Expanded"][0] == "True"


def test_rule_stays_for_a_patch_that_needs_too_many_and_goes_with_it() -> None:
    cluster = FakeCluster(ceiling=1)
    cluster.slices(*[slice_of(gpu("a"), gpu(name), gpu("c", 20), pool=name) for name in ("p", "q")])
    cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[CLOSED])
    cluster.patch("far", driver=DRIVER, pool="q", device="c", taints=[CLOSED])
    cluster.patch("else", driver=DRIVER, pool="p", device="a", taints=[structs.replace(CLOSED, key="k")])

    def other() -> None:
        cluster.patch("two", cel=[BIG], priority=1, taints=[X])

    def narrowed() -> None:
        assert cluster.conditions("two")["Expanded"][1] == "TooManyRules"
        assert len(cluster.rules) == 3
        for name in ("far", "else"):
            cluster.patch(name, driver="none", taints=[CLOSED])

    def gone() -> None:
        assert cluster.selectors() == {(DRIVER, "p", "a", ""), ("none", None, None, "")}
        cluster.patch("one", driver="none", taints=[CLOSED])

    def fits() -> None:
        assert (DRIVER, "p", "a", "") in cluster.selectors()
        cluster.drop_patch("two")

    play(cluster, other, narrowed, gone, fits)
    assert cluster.selectors() == {("none", None, None, "")}
    assert cluster.conditions("one")["Expanded"][0] == "True"


def test_nothing_is_deleted_for_a_change_whose_other_half_comes_in_the_next_round() -> None:
    """A patch begins to win while rules of another one are being written."""
    cluster = one_pool()
    cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[CLOSED])

    def other(_: str) -> None:
        cluster.after_apply = lambda _: None
        cluster.patch("two", driver=DRIVER, priority=1, taints=[X])

    def busy() -> None:
        cluster.log.clear()
        cluster.after_apply = other
        cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[CLOSED, structs.replace(X, key="k")])

    play(cluster, busy)
    written = [line.partition("-")[0] for line in cluster.log if not line.startswith("status")]
    assert written == ["create one", "create two", "delete one"]


def test_start_in_the_middle_of_a_generation_leaves_rules_as_they_are() -> None:
    """Else devices of slices that are still to come would be opened."""
    cluster = FakeCluster()
    first = structs.replace(slice_of(gpu("a"), pool="p", name="s1"), slice_count=2)
    other = structs.replace(slice_of(gpu("b"), gpu("c", 20), pool="p", name="s2"), slice_count=2)
    cluster.slices(first, other)
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    both = {(DRIVER, "p", "a", ""), (DRIVER, "p", "b", "")}

    def begun() -> None:
        assert cluster.selectors() == both
        cluster.slices(structs.replace(first, pool_generation=2))
        cluster.log.clear()

    play(cluster, begun)
    cluster.restart()
    play(cluster, lambda: cluster.slices(structs.replace(other, pool_generation=2)))
    assert (cluster.selectors(), cluster.log) == (both, [])


class FinalizingCluster(FakeCluster):
    """Rules have a finalizer, so they stay when they are deleted."""

    async def delete_rule(self, stored: StoredRule) -> WriteAnswer:
        self.log.append(f"delete {stored.meta.name}")
        meta = structs.replace(stored.meta, resource_version=self._version())
        left = structs.replace(stored, rule=structs.replace(stored.rule, meta=meta, deleting=True))
        self.rules[stored.meta.name] = left
        return WriteAnswer(left)


def test_rule_that_finalizers_keep_is_not_written_and_another_name_acts_meanwhile() -> None:
    cluster = FinalizingCluster()
    cluster.slices(slice_of(gpu("a"), pool="p"))
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    none: list[Any] = []

    def emptied() -> None:
        cluster.log.clear()
        cluster.patch("one", driver=DRIVER, taints=none)

    def wanted_again() -> None:
        [name] = cluster.rules
        assert cluster.log == [f"delete {name}", "status one"]
        assert cluster.patches["one"].status.rules == 1, "it is still there"
        cluster.log.clear()
        cluster.patch("one", driver=DRIVER, taints=[CLOSED])

    def gone() -> None:
        name, other = sorted(cluster.rules)
        assert other == f"{name}-2"
        assert cluster.conditions("one")["Expanded"][0] == "True"
        assert cluster.log == [f"create {other}", "status one"]
        cluster.log.clear()
        cluster.drop_rule(name)

    play(cluster, emptied, wanted_again, gone)
    assert [line.split()[0] for line in cluster.log] == ["create", "delete"]
    assert cluster.conditions("one")["Expanded"][0] == "True"


def test_rule_that_is_gone_before_its_deletion_was_answered_is_forgotten() -> None:
    cluster = FinalizingCluster()
    cluster.slices(slice_of(gpu("a"), pool="p"))
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    delete_rule = cluster.delete_rule

    async def slow(stored: StoredRule) -> WriteAnswer:
        answer = await delete_rule(stored)
        cluster.drop_rule(stored.meta.name)
        return answer

    cluster.delete_rule = slow  # type: ignore[method-assign]
    play(cluster, lambda: cluster.patch("one", driver=DRIVER, pool="p", taints=[CLOSED]))
    assert cluster.selectors() == {(DRIVER, "p", None, "")}
    assert set(cluster.controller.book.rules) == set(cluster.rules)
