"""Who writes admission policies, when, and what is said about those that differ."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.policy.documents import make_defaults, make_entry, policy_of
from tests.unit.running import running
from webhook.cluster.client.errors import ClusterError, Refused
from webhook.cluster.settings import FallbackSettings, SyncMode
from webhook.daemons.fallback_keeper import FallbackKeeper, FallbackParts
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.store import PolicyStore
from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject, key_of, managed
from webhook.policy.vap.fallback import export_fallback
from webhook.telemetry.fallback import FallbackMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from webhook.policy.model import Policy
    from webhook.policy.vap.drift import FallbackWrite

Json = dict[str, Any]

XID: Final = make_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})
POLICY: Final = policy_of(rules=[XID], defaultTolerations=[make_defaults("wait", key="maint", operator="Exists")])
OTHER: Final = policy_of(rules=[{**XID, "name": "other"}])
TOLERATIONS: Final = AdmissionObjectKey("ValidatingAdmissionPolicy", "device-taint-webhook-tolerations")
SECONDS: Final = 30.0


class World:
    """A cluster that has what was written, and a keeper that looks at it."""

    def __init__(self, mode: SyncMode = SyncMode.APPLY) -> None:
        self.policies = PolicyStore()
        self.objects: dict[AdmissionObjectKey, StoredObject] = {}
        self.writes: list[tuple[str, AdmissionObjectKey]] = []
        self.events: list[tuple[str, str]] = []
        self.refused: dict[str, ClusterError] = {}
        self.filled_in: Json = {}
        """What the API server adds to each spec."""
        self.version: str | None = "v1"
        self.problem: str | None = None
        self.leads = True
        self._looks = 0
        self.registry = CollectorRegistry()
        self._versions = 0
        self.keeper = FallbackKeeper(
            FallbackParts(
                policies=self.policies,
                settings=FallbackSettings(mode=mode, namespace="device-taint-webhook"),
                cache=self,  # type: ignore[arg-type]  # as far as it is asked
                writer=self,  # type: ignore[arg-type]
                metrics=FallbackMetrics(self.registry),
                tell=self._tell,
                leads=self._leads,
                random=lambda: 0.99,
            )
        )

    # --- the cache ---------------------------------------------------------------------------

    async def mutating_version(self) -> str | None:
        return self.version

    def stored(self) -> dict[AdmissionObjectKey, StoredObject]:
        return dict(self.objects)

    # --- the writer --------------------------------------------------------------------------

    async def carry_out(self, write: FallbackWrite) -> StoredObject | None:
        self.writes.append(("delete" if write.wanted is None else "apply", write.key))
        if write.key.name in self.refused:
            raise self.refused[write.key.name]
        if write.wanted is None:
            del self.objects[write.key]
            return None
        return self.put(managed(write.wanted))

    def put(self, obj: Json, **spec: Any) -> StoredObject:
        """Stores an object, by whoever it is."""
        key = key_of(obj)
        before = self.objects.get(key)
        whole = {**obj["spec"], **self.filled_in, **spec}
        if before is None or before.spec != whole:
            self._versions += 1
            generation = 1 if before is None else before.generation + 1
            labels = obj["metadata"]["labels"]
            self.objects[key] = StoredObject(key, labels, whole, key.name, generation, str(self._versions))
        self.keeper.wake()
        return self.objects[key]

    def _leads(self) -> bool:
        self._looks += 1
        return self.leads

    async def looked(self) -> None:
        """Returns after it has had another look, from begin to end."""
        for _ in range(2):
            before = self._looks
            self.keeper.wake()
            await until(lambda before=before: self._looks > before)  # type: ignore[misc]

    async def _tell(self, reason: str, note: str) -> None:
        self.events.append((reason, note))

    # --- what tests ask ----------------------------------------------------------------------

    def use(self, policy: Policy) -> None:
        self.policies.use(Judge(policy))

    def equals(self, policy: Policy) -> bool:
        wanted = export_fallback(policy, mutating_version=self.version).objects
        return {key: each.spec for key, each in self.objects.items()} == {
            key_of(obj): {**obj["spec"], **self.filled_in} for obj in wanted
        }

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"device_taint_webhook_fallback_{name}", labels)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 -- a metric has no event
            await asyncio.sleep(0.01)


def test_objects_follow_the_policy_and_are_deleted_with_it() -> None:
    world = World()

    async def test() -> None:
        async with running(world.keeper.run()):
            world.use(POLICY)
            await until(lambda: world.equals(POLICY) and world.sample("objects", state="in_sync") == len(world.objects))
            assert world.sample("parts", coverage="full") == 2
            world.use(OTHER)
            await until(lambda: world.equals(OTHER))
            await until(lambda: world.sample("objects", state="surplus") == 0)
        assert world.events == []
        assert world.sample("problem") == 0
        assert world.sample("reverts_total") == 0

    run(test)


def test_policy_that_cannot_be_read_changes_nothing() -> None:
    """At the start there is none to go by: the built-in policy is for clusters without one."""
    world = World()

    async def test() -> None:
        async with running(world.keeper.run()):
            world.policies.reject("no YAML")
            await world.looked()
            assert world.writes == []
            world.use(POLICY)
            await until(lambda: world.equals(POLICY))
            world.policies.reject("no YAML")
            await world.looked()
            assert world.equals(POLICY)

    run(test)


def test_cluster_without_a_policy_has_the_built_in_one() -> None:
    world = World()

    async def test() -> None:
        async with running(world.keeper.run()):
            world.policies.use(BUILTIN_JUDGE)
            await until(lambda: world.equals(BUILTIN_JUDGE.policy))

    run(test)


@pytest.mark.parametrize("hindrance", ["leads", "problem"])
def test_nothing_is_written_by_who_does_not_lead_or_does_not_know(hindrance: str) -> None:
    world = World()
    setattr(world, hindrance, False if hindrance == "leads" else "not read yet")

    async def test() -> None:
        world.use(POLICY)
        async with running(world.keeper.run()):
            await world.looked()
            assert world.writes == []
            world.leads, world.problem = True, None
            await until(lambda: world.equals(POLICY))

    run(test)


def test_change_by_hand_is_put_back_once_and_told_of() -> None:
    world = World()

    async def test() -> None:
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.sample("objects", state="in_sync") == 10)
            obj = next(each for each in export_fallback(POLICY).objects if key_of(each) == TOLERATIONS)
            world.put(managed(obj), validations=[])
            await until(lambda: world.equals(POLICY) and world.events != [])
            assert world.sample("reverts_total") == 1
            del world.objects[TOLERATIONS]
            world.keeper.wake()
            await until(lambda: world.equals(POLICY) and len(world.events) == 2)
        assert {reason for reason, _ in world.events} == {"AdmissionPolicyPutBack"}
        assert all(str(TOLERATIONS) in note for _, note in world.events)

    run(test)


def test_new_policy_is_no_change_by_hand() -> None:
    world = World()

    async def test() -> None:
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.sample("objects", state="in_sync") == 10)
            world.use(policy_of(rules=[{**XID, "message": "new"}]))
            await until(lambda: world.sample("objects", state="in_sync") == 6)
        assert world.events == []

    run(test)


def test_what_an_api_server_fills_in_is_not_written_for_ever() -> None:
    """A field of a release that we do not know: the object is settled as long as nobody touches it."""
    world = World()
    world.filled_in = {"newField": "default"}

    async def test() -> None:
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.sample("objects", state="in_sync") == 10)
            written = len(world.writes)
            await world.looked()
            assert len(world.writes) == written
        assert world.events == []

    run(test)


def test_refused_write_leaves_the_rest_of_its_kind_as_it_is_and_is_tried_again() -> None:
    """Half an update could open a gap. What adds is another kind."""
    world = World()

    async def test() -> None:
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.equals(POLICY))
            before = dict(world.objects)
            world.refused[TOLERATIONS.name] = Refused("not allowed", code=403)
            world.use(OTHER)
            await until(lambda: world.sample("problem") == 1)
            left = {key: each for key, each in world.objects.items() if key.kind.startswith("Validating")}
            assert left == {key: before[key] for key in left}
            assert not any(key.kind.startswith("Mutating") for key in world.objects)
            world.refused.clear()
            await until(lambda: world.equals(OTHER))
            await until(lambda: world.sample("problem") == 0)
        assert world.sample("writes_total", verb="apply", result="failed") is not None

    run(test)


def test_foreign_object_is_told_of_once() -> None:
    world = World()

    async def test() -> None:
        foreign = {"kind": TOLERATIONS.kind, "metadata": {"name": TOLERATIONS.name, "labels": {}}, "spec": {"a": 1}}
        world.put(foreign)
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.sample("objects", state="foreign") == 1)
            await world.looked()
        assert world.objects[TOLERATIONS].spec == {"a": 1}
        [(reason, note)] = world.events
        assert reason == "AdmissionPoliciesDiffer"
        assert f"{TOLERATIONS} is foreign" in note

    run(test)


def test_report_says_what_differs_and_writes_nothing() -> None:
    world = World(SyncMode.REPORT)

    async def test() -> None:
        for obj in export_fallback(POLICY).objects:
            world.put(obj)
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.sample("objects", state="in_sync") == 10)
            assert world.events == []
            world.use(OTHER)
            await until(lambda: world.events != [])
            assert world.sample("objects", state="left_over") == 4
        assert world.writes == []

    run(test)


def test_without_policies_that_add_there_are_those_that_refuse() -> None:
    world = World()
    world.version = None

    async def test() -> None:
        world.use(POLICY)
        async with running(world.keeper.run()):
            await until(lambda: world.equals(POLICY))
        assert {key.kind.removesuffix("Binding") for key in world.objects} == {"ValidatingAdmissionPolicy"}

    run(test)
