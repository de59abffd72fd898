"""What the process of the patch controller is made of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.patches.patched import DRIVER, class_of, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.cluster.cache.decoders import StoredClass
from webhook.cluster.client.errors import Refused
from webhook.config.workers import parse_patch
from webhook.daemons import evict, patch
from webhook.daemons.patch import Patcher
from webhook.patches.stored import StoredPatch
from webhook.runtime import Stage, Stages

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def patcher(folder: Path, *arguments: str) -> Patcher:
    return Patcher(parse_patch("patch", [f"--kubeconfig={folder / 'kubeconfig'}", *arguments], {}))


@pytest.mark.usefixtures("process_settings")
@pytest.mark.parametrize("daemon", [patch, evict])
def test_error_of_the_api_server_ends_it_with_one_line(
    daemon: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """L15: a traceback of ours says nothing about the server."""

    async def refused() -> None:
        raise Refused("POST /apis/x: 403: no", code=403)

    worker = "Patcher" if daemon is patch else "Worker"
    monkeypatch.setattr(f"{daemon.__name__}.{worker}.stages", lambda _: Stages([Stage(name="x", start=refused)]))
    mode = [] if daemon is patch else ["--mode=observe"]
    assert daemon.run([f"--kubeconfig={tmp_path / 'kubeconfig'}", *mode]) == 1
    [line] = [json.loads(each) for each in capfd.readouterr().err.splitlines() if "stopped by an error" in each]
    assert (line["error"], "trace" in line) == ("POST /apis/x: 403: no", False)


def test_slices_are_left_alone_unless_that_is_asked_for(tmp_path: Path) -> None:
    assert patcher(tmp_path)._keeper is None
    assert patcher(tmp_path)._controller._parts.applied(StoredPatch(patch_of())) == (0, None)


def test_what_the_caches_tell_reaches_the_keeper_and_the_controller(tmp_path: Path) -> None:
    process = patcher(tmp_path, "--slice-attributes")
    cache, keeper = process._cache, process._keeper
    assert keeper is not None
    value = slice_of("gpu-0", name="s")
    patch = StoredPatch(patch_of("one", device_class_name="gpu", attributes={f"{DRIVER}/n": 7}))
    [(_, gpu)] = class_of("gpu", "true").items()
    gpus = StoredClass(ObjectMeta("gpu"), gpu)
    cache.slices._store.upsert(value)
    cache.patches._store.upsert(patch)
    cache.classes._store.upsert(gpus)
    ledger = keeper._ledger
    assert ledger.take(9) == [value]
    assert (ledger.patches.patches, ledger.patches.classes) == ((patch.patch,), {"gpu": gpu})
    assert process._controller.index.patches == {"one": patch.patch}
    cache.patches._store.delete(patch)
    cache.classes._store.delete(gpus)
    assert (ledger.patches.patches, ledger.patches.classes) == ((), {})


def test_process_that_has_not_read_everything_writes_no_slice(tmp_path: Path) -> None:
    process = patcher(tmp_path, "--slice-attributes")
    assert process._keeper is not None
    assert not process._keeper._parts.current()
    waiting = process._controller.waiting
    process._controller.observe_patch("one", StoredPatch(patch_of("one")))
    process._keeper._parts.report(["one", "gone"])
    assert process._controller.waiting == waiting + 1
