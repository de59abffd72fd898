"""The policy in use: what replaces it, what does not, and who is told."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.builders import NOW
from webhook.api.meta import format_time
from webhook.commands.shared.policy_files import read_policy
from webhook.daemons.policy_loader import PolicyLoader, watch_file
from webhook.policy.decide import PolicyStore
from webhook.telemetry.reviews import PolicyMetrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
GOOD = f"{HEAD}rules: [{{name: no-wildcards, action: deny, match: {{tolerations: {{keys: [a/b]}}}}}}]\n"
OTHER = f"{HEAD}default: deny\nrules: [{{name: some, action: allow, match: {{tolerations: {{keys: [a/b]}}}}}}]\n"
BROKEN = f"{HEAD}rules: [{{name: x, action: forbid}}]\n"
SECONDS = 60.0


class BinaryData(NamedTuple):
    """A ConfigMap in which not all is text."""

    binary_keys: tuple[str, ...]
    data: dict[str, str] = {}  # noqa: RUF012 -- never changed


UNREADABLE: dict[str, tuple[dict[str, str] | BinaryData, str]] = {
    "the policy is binary": (
        BinaryData(("policy.yaml",)),
        "binaryData[policy.yaml]: Forbidden: must be in data, as text in UTF-8",
    ),
    "its key is misspelt": (
        {"policy.yml": OTHER},
        'data[policy.yml]: Forbidden: unknown key, did you mean "policy.yaml"?',
    ),
    "its key is misspelt and it is binary": (
        BinaryData(("policy.yml",), {"notes": "x"}),
        'binaryData[policy.yml]: Forbidden: unknown key, did you mean "policy.yaml"?',
    ),
    "there is no data": (
        {},
        "data[policy.yaml]: Required value: must hold the policy; to use the built-in one, delete the ConfigMap",
    ),
    "there is only a candidate": ({"candidate.yaml": GOOD}, "data[policy.yaml]: Required value: must hold the policy"),
}
"""Content of ConfigMaps without a policy that can be read, and what is said about it."""


class Kept:
    """A loader with what it fills, and what it told."""

    def __init__(self, read: Any = read_policy) -> None:
        self.policies = PolicyStore()
        self.metrics = PolicyMetrics()
        self.told: list[tuple[str, str, str]] = []
        self.seconds = 0.0
        self.loader = PolicyLoader(self.policies, self.metrics, read, clock=lambda: self.seconds)
        self.loader.record = lambda reason, action, note: self.told.append((reason, action, note))

    def after(self, *offers: str | dict[str, str] | BinaryData | None) -> Kept:
        """Offers one after the other, each taken before the next comes; a text is that of the policy."""

        async def run() -> None:
            work = asyncio.create_task(self.loader.run())
            for offer in offers:
                self.loader.loaded.clear()
                if isinstance(offer, BinaryData):
                    self.loader.offer(offer.data, offer.binary_keys)
                else:
                    self.loader.offer({"policy.yaml": offer} if isinstance(offer, str) else offer)
                await asyncio.wait_for(self.loader.loaded.wait(), SECONDS)
            work.cancel()

        asyncio.run(run())
        return self

    @property
    def rules(self) -> list[str]:
        return [rule.name for rule in self.policies.active.policy.rules]

    @property
    def samples(self) -> dict[tuple[str, ...], float]:
        return {
            (sample.name.removeprefix("device_taint_webhook_"), *sample.labels.values()): sample.value
            for family in self.metrics.collect()
            for sample in family.samples
        }


@pytest.mark.parametrize(
    ("offers", "rules", "loaded", "told"),
    [
        pytest.param([None], None, 1.0, [], id="no document is the built-in policy"),
        pytest.param([GOOD], ["no-wildcards"], 1.0, [], id="a good one is used"),
        pytest.param([GOOD, BROKEN], ["no-wildcards"], 0.0, ["PolicyNotLoaded"], id="the last good one stays in use"),
        pytest.param([BROKEN], None, 0.0, ["PolicyNotLoaded"], id="a broken one from the start leaves the built-in"),
        pytest.param([BROKEN, OTHER], ["some"], 1.0, ["PolicyNotLoaded"], id="a mended one is used"),
        pytest.param([GOOD, None], None, 1.0, ["PolicyDeleted"], id="a deleted one is the built-in policy again"),
        pytest.param([GOOD, {}, OTHER], ["some"], 1.0, ["PolicyNotLoaded"], id="F11: one that was lost is mended"),
        pytest.param([GOOD, {}, None], None, 1.0, ["PolicyNotLoaded", "PolicyDeleted"], id="F11: or deleted"),
    ],
)
def test_policy_in_use_is_the_last_that_can_be_used(
    offers: list[Any], rules: list[str] | None, loaded: float, told: list[str]
) -> None:
    kept = Kept().after(*offers)
    hash_ = kept.policies.active.policy.hash
    assert (hash_ == "builtin", kept.rules) == (rules is None, rules or [])
    assert (kept.samples["policy_load_success",], kept.samples["policy_info", hash_]) == (loaded, 1.0)
    assert kept.loader.problem is None, "a broken policy is no reason not to answer"
    assert [each[:2] for each in kept.told] == [(reason, "LoadPolicy") for reason in told]
    assert (kept.policies.state.failure == "") is (loaded == 1.0)


def test_nothing_is_ready_before_the_first_look() -> None:
    loader = Kept().loader
    assert loader.problem == "the policy has not been read yet"


def test_broken_document_is_logged_every_five_minutes_until_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    """M7."""
    kept = Kept().after(BROKEN)
    for _ in range(10):
        kept.seconds += 60
        kept.loader.complain()
    records = [
        record for record in caplog.records if record.message == "policy not loaded; the current policy stays in use"
    ]
    assert [vars(record)["sinceSeconds"] for record in records] == [0, 300, 600]
    assert vars(records[2])["policyHash"] == "builtin"
    assert "Unsupported value" in vars(records[2])["errors"][0]
    mended = Kept().after(BROKEN, GOOD)
    caplog.clear()
    mended.seconds += 600
    mended.loader.complain()
    assert caplog.records == []


def test_loss_of_a_policy_is_a_warning_and_an_event_and_its_absence_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """H2: also that of one that stayed in use beside a broken document."""
    caplog.set_level("INFO")
    assert Kept().after(None, BROKEN, None).told[1:] == []
    assert [record.levelname for record in caplog.records if "built-in" in record.message] == ["INFO", "INFO"]
    caplog.clear()
    kept = Kept().after(GOOD, BROKEN, None)
    assert "data[policy.yaml].rules[0].action: Unsupported value" in kept.told[0][2]
    [record] = [record for record in caplog.records if "built-in" in record.message]
    assert record.levelname == "WARNING"
    assert record.__dict__["lastPolicyHash"] in kept.told[1][2]


def test_metrics_tell_the_mode_of_the_policy_in_use_and_its_pause() -> None:
    """H3: of what is in use, not of what was written last."""
    pause = f'{HEAD}mode: warn\npause: {{until: "2026-01-01T00:00:00Z"}}\n'
    relaxed = Kept().after(pause, BROKEN).samples
    assert (relaxed["policy_mode", "warn"], relaxed["policy_pause_expiry_timestamp_seconds",]) == (1.0, 1767225600.0)
    strict = Kept().after(pause, GOOD).samples
    assert (strict["policy_mode", "enforce"], strict["policy_pause_expiry_timestamp_seconds",]) == (1.0, 0.0)
    assert ("policy_mode", "warn") not in strict


@pytest.mark.parametrize("before", [None, GOOD], ids=["from the start", "after a good one"])
@pytest.mark.parametrize("content", UNREADABLE)
def test_config_map_without_a_policy_leaves_the_last_good_one_in_use(
    content: str, before: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """F11: the built-in policy allows every toleration."""
    offer, why = UNREADABLE[content]
    kept = Kept().after(*([before] if before else []), offer)
    assert (kept.rules, kept.samples["policy_load_success",]) == (["no-wildcards"] if before else [], 0.0)
    ((reason, action, note),) = kept.told
    assert (reason, action, why in note, kept.loader.problem) == ("PolicyNotLoaded", "LoadPolicy", True, None)
    (record,) = [each for each in caplog.records if each.message.startswith("policy not loaded")]
    assert vars(record)["errors"][0].startswith(why)
    assert kept.policies.state.failure.startswith(why)


def test_candidate_as_binary_data_is_one_that_cannot_be_tried() -> None:
    """F11's sibling."""
    kept = Kept().after(BinaryData(("candidate.yaml",), {"policy.yaml": GOOD}))
    assert (kept.rules, kept.samples["policy_load_success",]) == (["no-wildcards"], 1.0)
    assert kept.samples["policy_candidate_load_success",] == 0.0
    ((_, action, note),) = kept.told
    assert action == "LoadPolicy"
    assert note == (
        "candidate policy not loaded: binaryData[candidate.yaml]: Forbidden: must be in data, as text in UTF-8"
    )


def test_candidate_is_tried_beside_and_can_break_without_harm() -> None:
    kept = Kept().after({"policy.yaml": GOOD, "candidate.yaml": OTHER})
    assert kept.policies.candidate is not None
    assert [rule.name for rule in kept.policies.candidate.policy.rules] == ["some"]
    assert kept.samples["policy_candidate_load_success",] == 1.0
    kept = Kept().after({"policy.yaml": GOOD, "candidate.yaml": BROKEN})
    assert (kept.rules, kept.samples["policy_candidate_load_success",]) == (["no-wildcards"], 0.0)
    assert ("policy_candidate_load_success",) not in Kept().after(GOOD).samples


def test_document_that_did_not_change_is_not_read_again() -> None:
    texts: list[str] = []

    def read(text: str, at: Any) -> Any:
        texts.append(text)
        return read_policy(text, at)

    Kept(read).after(GOOD, GOOD)
    assert texts == [GOOD]


def test_fault_of_ours_while_reading_is_a_broken_document() -> None:
    def read(text: str, at: Any) -> Any:
        raise ZeroDivisionError(text, at)

    kept = Kept(read).after(GOOD)
    assert (kept.policies.active.policy.hash, kept.samples["policy_load_success",]) == ("builtin", 0.0)


def test_only_rules_in_use_are_counted() -> None:
    kept = Kept().after(GOOD)
    kept.metrics.count([("no-wildcards", "deny"), ("no-wildcards", "deny"), ("made-up", "deny")])
    decided = {key: value for key, value in kept.samples.items() if key[0] == "policy_decisions_total"}
    assert decided == {("policy_decisions_total", "no-wildcards", "deny"): 2.0}
    kept.metrics.use(["default", "some"], [])
    assert not [key for key in kept.samples if key[0] == "policy_decisions_total"]


@pytest.mark.parametrize(("days", "told"), [(8, 0), (6, 1), (-1, 0)])
def test_exceptions_that_end_within_a_week_are_told_once(days: int, told: int) -> None:
    ends = format_time(NOW + timedelta(days=days))
    exception = f"{{name: lab, rules: [no-wildcards], owner: o, reason: r, expiresAt: '{ends}'}}"
    kept = Kept().after({"policy.yaml": f"{GOOD}exceptions: [{exception}]\n"})
    kept.loader.remind(NOW)
    kept.loader.remind(NOW + timedelta(minutes=10))
    assert [each[:2] for each in kept.told] == [("ExceptionEndsSoon", "RemindOfException")] * told
    assert kept.samples["policy_exception_expiry_timestamp_seconds", "lab"] == (NOW + timedelta(days=days)).timestamp()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 -- the loader sets no event when it swaps
            await asyncio.sleep(0.01)


def watched(path: Path, scene: Callable[[Kept], Awaitable[None]]) -> None:
    """Plays it beside a watch of a file with a good policy, once that is in use."""
    kept = Kept()

    async def run() -> None:
        work = asyncio.create_task(kept.loader.run())
        watch = asyncio.create_task(watch_file(path, kept.loader))
        await until(lambda: kept.rules == ["no-wildcards"])
        await scene(kept)
        watch.cancel()
        work.cancel()

    asyncio.run(run())


def test_policy_file_is_read_again_when_it_changes_and_kept_when_it_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)

    async def scene(kept: Kept) -> None:
        path.write_text(OTHER)
        await until(lambda: kept.rules == ["some"])
        path.unlink()
        await until(lambda: not kept.metrics.load_success)
        assert kept.rules == ["some"]
        path.write_text(OTHER)
        await until(lambda: kept.metrics.load_success)

    watched(path, scene)


def test_f12_policy_file_that_becomes_a_pipe_is_reported_and_does_not_end_the_watch(tmp_path: Path) -> None:
    path, mounted = tmp_path / "policy.yaml", tmp_path / "data"
    mounted.write_text(GOOD)
    path.symlink_to(mounted)  # as a mounted ConfigMap has it

    async def scene(kept: Kept) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").replace(path)
        await until(lambda: not kept.metrics.load_success)
        path.unlink()
        path.write_text(OTHER)
        await until(lambda: kept.rules == ["some"])

    watched(path, scene)


def test_newest_document_wins_however_long_an_older_one_takes() -> None:
    read, go_on = [], threading.Event()

    def slowly(text: str, at: Any) -> Any:
        read.append(text)
        assert go_on.wait(SECONDS)
        return read_policy(text, at)

    kept = Kept(slowly)

    async def run() -> None:
        work = asyncio.create_task(kept.loader.run())
        kept.loader.offer({"policy.yaml": GOOD})
        await until(lambda: bool(read))
        for document in (BROKEN, OTHER):
            kept.loader.offer({"policy.yaml": document})
        go_on.set()
        await until(lambda: kept.rules == ["some"])
        work.cancel()

    asyncio.run(run())
    assert read == [GOOD, OTHER]
    assert kept.told == []
