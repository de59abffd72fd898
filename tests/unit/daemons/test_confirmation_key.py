"""Which codes the worker believes: those that the key proves for the rule as it stands."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.cluster.peer import Answer, Peer, cluster_of, run, status
from tests.unit.eviction.objects import rule
from tests.unit.eviction.patched import patch
from webhook.admission.confirmation import ImpactToConfirm, Numbers, about_of, make_code
from webhook.admission.patch_code import patch_code_about
from webhook.api.meta import ObjectMeta
from webhook.api.rules import CONFIRM_IMPACT, DeviceSelector
from webhook.api.taints import DeviceTaint
from webhook.config.evict import parse_evict
from webhook.daemons.confirmation_key import NO_KEY, CodeKey
from webhook.eviction.ceiling import NOT_CONFIRMED, Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.rules import DeviceTaintRule
    from webhook.cluster.client.rest import Cluster

NO_CLUSTER = cast("Cluster", None)
"""Nothing is asked for."""
SECRET = b"k" * 32
FORGED = "it was made for another rule, selector, taint or effect, or with another key"
HIT = ImpactToConfirm(Numbers(30, 20, 10, 1), frozenset({"ml"}), frozenset())


def coded(value: DeviceTaintRule, key: bytes = SECRET, *, backdated: bool = False) -> DeviceTaintRule:
    """The rule with a code that was made for it, and expired long ago."""
    code = make_code(about_of(value, backdated=backdated), HIT, "jane", NOW - timedelta(days=400), key)
    annotations = {**value.meta.annotations, CONFIRM_IMPACT: code}
    return structs.replace(value, meta=structs.replace(value.meta, annotations=annotations))


def worker_key(folder: Path, key: bytes = SECRET) -> CodeKey:
    """Of a worker that has it in a file."""
    (folder / "key").write_bytes(key)
    settings = parse_evict("program", ["--mode=delegated", f"--key-file={folder / 'key'}"], {})
    found = CodeKey(settings, NO_CLUSTER, lambda: None)
    asyncio.run(_start(found))
    return found


def with_file(folder: Path, key: bytes = SECRET) -> Callable[[DeviceTaintRule], str]:
    """What is said of rules by a worker that has the key in a file."""
    return worker_key(folder, key).code_problem_of


async def _start(key: CodeKey) -> None:
    for stage in key.stages():
        assert stage.start is not None
        await stage.start()


def test_code_is_proved_by_the_key_however_old_it_is(tmp_path: Path) -> None:
    """R5."""
    code_problem_of = with_file(tmp_path)
    for value in (rule(), rule(effect="NoSchedule", evict=True), rule(selector=DeviceSelector(device="gpu-0"))):
        assert code_problem_of(coded(value)) == ""
        assert code_problem_of(coded(value, backdated=True)) == ""
        assert code_problem_of(coded(value, b"x" * 32)) == FORGED


@pytest.mark.parametrize(
    "changed",
    [
        {"selector": DeviceSelector()},
        {"selector": DeviceSelector(DRIVER, "node-1")},
        {"selector": DeviceSelector(DRIVER, unknown=(("future", "1"),))},
        {"taint": structs.replace(rule().taint, key="example.com/other")},
        {"taint": structs.replace(rule().taint, value="fan")},
        {"meta": structs.replace(rule().meta, name="other")},
    ],
    ids=str,
)
def test_code_of_another_rule_proves_nothing(changed: dict[str, Any], tmp_path: Path) -> None:
    """R5."""
    code = coded(rule()).meta.annotations
    value = structs.replace(rule(), **changed)
    value = structs.replace(value, meta=structs.replace(value.meta, annotations=code))
    assert with_file(tmp_path)(value) == FORGED


def test_code_of_a_rule_whose_name_the_server_made_up_is_proved(tmp_path: Path) -> None:
    """The API server keeps generateName beside the name."""
    value = rule()
    sent = structs.replace(value, meta=structs.replace(value.meta, name="", generate_name="gpu-"))
    code = coded(sent).meta.annotations
    stored = structs.replace(value, meta=structs.replace(sent.meta, name="gpu-x7x2p", annotations=code))
    assert with_file(tmp_path)(stored) == ""


def test_key_file_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    settings = parse_evict("program", [f"--key-file={tmp_path / 'none'}"], {})
    with pytest.raises(OSError, match="none"):
        asyncio.run(_start(CodeKey(settings, NO_CLUSTER, lambda: None)))


def test_until_the_key_is_known_no_code_is_proved_and_then_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """R5: what is missing is said, looked for again, and the worker hears of it when it comes."""
    secret: dict[str, Any] = {"metadata": {"name": "device-taint-webhook-key", "resourceVersion": "1"}}
    known: list[str] = []

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = lambda _: Answer(status(403, "may not"), 403)
            settings = parse_evict("program", ["--mode=delegated"], {})
            key = CodeKey(settings, cluster, lambda: known.append(key.code_problem_of(coded(rule()))))
            secrets = key._secret
            assert secrets is not None
            await secrets.look()
            assert "may not" in (key.problem or "")
            assert key.code_problem_of(coded(rule())) == NO_KEY
            peer.otherwise = lambda _: Answer(secret)
            await secrets.look()
            assert "is empty" in (key.problem or "")
            assert key.code_problem_of(coded(rule())) == NO_KEY
            secret["data"] = {"key": base64.b64encode(SECRET).decode()}
            await secrets.look()
            assert (key.problem, known) == (None, [""])
            assert {request.method for request in peer.requests} == {"GET"}

    run(test())
    assert "no key from the secret" in caplog.text


def test_worker_that_does_not_act_needs_no_key_and_takes_codes_as_they_are_written() -> None:
    settings = parse_evict("program", ["--mode=observe"], {})
    key = CodeKey(settings, NO_CLUSTER, lambda: None)
    assert (key.stages(), key.problem) == ([], None)
    assert key.code_problem_of(coded(rule(), b"x" * 32)) == ""
    assert key.confirmation_of(coded(rule(), b"x" * 32)) == Confirmation(HIT.numbers)


def test_rule_without_an_annotation_is_not_confirmed_and_not_in_doubt(tmp_path: Path) -> None:
    assert worker_key(tmp_path).confirmation_of(rule()) == NOT_CONFIRMED


@pytest.mark.parametrize("text", ["yes", "v1.1.2.3.4.5.!"])
def test_annotation_that_is_no_code_confirms_no_figures(text: str, tmp_path: Path) -> None:
    found = worker_key(tmp_path).confirmation_of(rule(annotations={CONFIRM_IMPACT: text}))
    assert found == Confirmation(None, FORGED)


def test_code_that_is_not_proved_has_figures_and_a_doubt(tmp_path: Path) -> None:
    """R5."""
    key = worker_key(tmp_path)
    assert key.confirmation_of(coded(rule())) == Confirmation(HIT.numbers)
    assert key.confirmation_of(coded(rule(), b"x" * 32)) == Confirmation(HIT.numbers, FORGED)


# --- patches --------------------------------------------------------------------------------------

FORGED_FOR_PATCH = "it was made for another patch, filter, taint or effect, or with another key"
EARLY, LATE = NOW - timedelta(hours=2), NOW - timedelta(hours=1)


def patch_with(*times: datetime | None, **fields: Any) -> ResourceSlicePatch:
    """A patch with a taint for each time; those in the past are part of its code."""
    taints = [DeviceTaint(f"example.com/{at}", "", "NoExecute", time) for at, time in enumerate(times)]
    return patch("firmware", DeviceSelector(DRIVER), *taints, **fields)


def coded_patch(value: ResourceSlicePatch, since: datetime = NOW, key: bytes = SECRET) -> ResourceSlicePatch:
    """The patch with a code that was made for it, when times before `since` were in the past."""
    code = make_code(patch_code_about(value, since), HIT, "jane", NOW - timedelta(days=400), key)
    return structs.replace(value, meta=structs.replace(value.meta, annotations={CONFIRM_IMPACT: code}))


@pytest.mark.parametrize("times", [(None,), (EARLY,), (EARLY, LATE, None), (LATE, LATE)], ids=str)
def test_code_of_a_patch_is_proved_whatever_was_past_when_it_was_made(
    times: tuple[datetime | None, ...], tmp_path: Path
) -> None:
    key = worker_key(tmp_path)
    for since in (EARLY, LATE, NOW):
        assert key.code_problem_of(coded_patch(patch_with(*times), since)) == ""
    assert key.code_problem_of(coded_patch(patch_with(*times), key=b"x" * 32)) == FORGED_FOR_PATCH
    assert key.confirmation_of(coded_patch(patch_with(*times))) == Confirmation(HIT.numbers)
    assert key.confirmation_of(patch_with(*times)) == NOT_CONFIRMED


@pytest.mark.parametrize(
    "changed",
    [
        {"filter": DeviceSelector()},
        {"taints": (DeviceTaint("example.com/0", "", "NoSchedule", EARLY),)},
        {"taints": (DeviceTaint("example.com/0", "v", "NoExecute", EARLY),)},
        {"taints": (DeviceTaint("example.com/0", "", "NoExecute", LATE),)},
        {"taints": (*patch_with(EARLY).taints, DeviceTaint("example.com/1", "", "NoExecute"))},
        {"meta": ObjectMeta("other")},
    ],
    ids=str,
)
def test_code_of_another_patch_proves_nothing(changed: dict[str, Any], tmp_path: Path) -> None:
    made = coded_patch(patch_with(EARLY))
    value = structs.replace(made, **changed)
    value = structs.replace(value, meta=structs.replace(value.meta, annotations=made.meta.annotations))
    assert worker_key(tmp_path).code_problem_of(value) == FORGED_FOR_PATCH


def test_code_of_a_rule_is_none_of_a_patch(tmp_path: Path) -> None:
    annotations = coded(rule("firmware")).meta.annotations
    value = patch_with(None)
    value = structs.replace(value, meta=structs.replace(value.meta, annotations=annotations))
    assert worker_key(tmp_path).code_problem_of(value) == FORGED_FOR_PATCH
