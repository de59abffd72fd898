"""What `serve` waits for before it takes reviews, and what it says meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.unit.cluster.api_peer import ApiPeer
from tests.unit.cluster.cache.inventory_bench import a_pod
from tests.unit.cluster.peer import Answer, Peer, Reply, Request, cluster_of, run, status, until
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME, WORKER
from webhook.config.serve import parse_serve
from webhook.daemons.serve import Webhook
from webhook.inventory.gangs import Gang
from webhook.patches.slice_patches import SlicePatches
from webhook.policy.model import Policy
from webhook.runtime import Stage, Stages, side_by_side

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 32
SECONDS = 60.0


class World:
    """An API server of one's own making, and a `serve` that wants to begin."""

    def __init__(self, folder: Path, *flags: str) -> None:
        words = [f"--kubeconfig={folder / 'k'}", f"--cert-dir={folder}", *flags]
        self.webhook = Webhook(parse_serve("serve", words, {}))
        self.metrics, self.checks, self.state = self.webhook._metrics, self.webhook._checks, self.webhook._state
        self.ready = asyncio.Event()
        self.peer = Peer()
        self.policy: Reply = Answer({"metadata": {"resourceVersion": "1"}, "items": []})
        self.metrics.watch_readiness(self.checks.problems)

    def answer(self, request: Request) -> Reply:
        if request.path.endswith("/configmaps"):
            return self.policy
        return Answer({"metadata": {"resourceVersion": "1"}, "items": []})

    def problem(self, name: str) -> str | None:
        return dict(self.checks.problems())[name]

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels)

    def visited(self, visit: Any) -> None:
        """Runs the stages beside a visitor."""

        async def scenario() -> None:
            async with self.peer as peer, cluster_of(peer) as cluster:
                peer.otherwise = self.answer

                async def begin() -> None:
                    self.ready.set()

                self.webhook._cluster = cluster
                sources = self.webhook._review_state_stages()
                stages = Stages([*side_by_side(sources), Stage(name="reviews", start=begin)])
                running = asyncio.create_task(stages.run())
                try:
                    await visit(peer)
                finally:
                    stages.stop()
                    if not self.ready.is_set():
                        running.cancel()
                    await asyncio.wait([running])

        run(scenario())


def test_lease_of_the_worker_is_read_while_the_policy_softens(tmp_path: Path) -> None:
    for limits in ("", "{action: soften, pods: 5}"):
        world = World(tmp_path)
        if limits:
            text = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
            text += f"impact: {{limits: [{limits}]}}\n"
            policy = {"metadata": {"name": POLICY_NAME, "namespace": OWN_NAMESPACE}, "data": {"policy.yaml": text}}
            world.policy = Answer({"metadata": {"resourceVersion": "1"}, "items": [policy]})

        async def visit(peer: Peer, world: World = world, limits: str = limits) -> None:
            await until(world.ready.is_set, "readiness", SECONDS)
            assert world.state.softens == bool(limits)
            if limits:
                await until(lambda: world.state.worker_problem() != "", "the lease", SECONDS)
                assert world.state.worker_problem().startswith("no eviction worker holds its lease")
            asked = [request.path for request in peer.requests if "/leases/" in request.path]
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{OWN_NAMESPACE}/leases/{WORKER}"
            assert set(asked) == ({lease} if limits else set())

        world.visited(visit)


class ClassesServed(World):
    """Its server has device classes."""

    def answer(self, request: Request) -> Reply:
        if request.path == "/apis/resource.k8s.io/v1":
            return Answer({"resources": [{"name": "deviceclasses"}]})
        return super().answer(request)


def test_patches_are_put_into_slices_only_if_that_is_asked_for(tmp_path: Path) -> None:
    """Reviews do not wait for them: until they are known, slices stay as they are."""
    for flag in ("--watch-patches", "--slice-attributes"):
        world = ClassesServed(tmp_path, flag)

        async def visit(peer: Peer, world: World = world, flag: str = flag) -> None:
            await until(world.ready.is_set, "readiness", SECONDS)
            await until(lambda: not world.state.patches().unknown, "them", SECONDS)
            found = world.state.slice_patches()
            assert found == (SlicePatches() if flag == "--slice-attributes" else None)
            assert any(request.path == "/apis/devicetaint.io/v1alpha1" for request in peer.requests)

        world.visited(visit)


class DevicePeer(ApiPeer):
    """One that also answers for what else `serve` reads."""

    def _next(self, request: Request) -> Reply:
        last = request.path.rpartition("/")[2]
        return super()._next(request) if last in {*self.objects, *self.served} else Peer._next(self, request)


def _of_a_job_set(name: str) -> Any:
    pod = a_pod(name, "c")
    return pod | {"metadata": pod["metadata"] | {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}}


def test_pods_are_followed_if_asked_for(tmp_path: Path) -> None:
    """What may not be read keeps neither readiness nor the inventory waiting."""
    world, peer = World(tmp_path, "--watch-pods"), DevicePeer()
    world.peer = peer
    peer.forbidden = frozenset({"pods"})
    peer.put(_of_a_job_set("a"))
    peer.put(_of_a_job_set("b"))

    async def visit(_: Peer) -> None:
        await until(world.ready.is_set, "readiness", SECONDS)
        await until(lambda: world.state.sight is not None and world.state.sight().inventory is not None, "it", SECONDS)
        await until(lambda: "no pods for you" in (dict(world.checks.notes())["pods"] or ""), "the reason", SECONDS)
        assert world.state.pods(Policy()) is None
        assert world.sample("ready") == 1
        peer.forbidden = frozenset()
        await until(lambda: world.state.pods(Policy()) is not None, "the pods", SECONDS)
        known = world.state.pods(Policy())
        assert known is not None
        assert known.sizes[Gang("JobSet", "ml", "train")] == 2
        assert dict(world.checks.notes())["pods"] is None

    world.visited(visit)


def test_patches_are_followed_if_asked_for_and_neither_they_nor_pods_otherwise(tmp_path: Path) -> None:
    for flags in ((), ("--watch-patches",), ("--patch-account=ops:bot",)):
        world = World(tmp_path, *flags)

        async def visit(peer: Peer, world: World = world, flags: tuple[str, ...] = flags) -> None:
            await until(world.ready.is_set, "readiness", SECONDS)
            asked = "/apis/devicetaint.io/v1alpha1"
            if not flags:
                assert world.state.patches().unknown.endswith("(serve --watch-patches)")
                assert world.state.pods(Policy()) is None
                assert not {"patches", "pods"} & dict(world.checks.notes()).keys()
                paths = [request.path for request in peer.requests]
                assert not [path for path in paths if path.startswith(asked) or path.endswith("/pods")]
                return
            await until(lambda: asked in [request.path for request in peer.requests], "a look", SECONDS)
            assert world.state.patch_account == ("ops:bot" if "ops" in flags[0] else "")
            assert "patches" in dict(world.checks.notes())

        world.visited(visit)


def test_policy_that_cannot_be_read_is_named_with_the_reason_and_keeps_nothing_else_waiting(tmp_path: Path) -> None:
    """M0: neither the metric nor the probe says that a policy is in use."""
    world = World(tmp_path)
    policy, world.policy = world.policy, Answer(status(403, "configmaps is forbidden"), 403)

    async def visit(_: Peer) -> None:
        await until(lambda: "forbidden" in (world.problem("policy") or ""), "the reason", SECONDS)
        await until(lambda: world.problem("names") is None, "the names", SECONDS)
        assert not world.ready.is_set()
        assert (world.sample("policy_load_success"), world.sample("ready")) == (0, 0)
        assert world.sample("policy_info", hash="builtin") is None
        assert world.sample("readiness_check", check="policy") == 0
        world.policy = policy
        await until(world.ready.is_set, "readiness", SECONDS)
        assert (world.sample("policy_load_success"), world.sample("ready")) == (1, 1)
        assert world.sample("policy_info", hash="builtin") == 1

    world.visited(visit)
