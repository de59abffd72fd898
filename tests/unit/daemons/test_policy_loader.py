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
    from collections.abc import Callable
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
        self.told: list[tuple[str, str]] = []
        self.seconds = 0.0
        self.loader = PolicyLoader(
            self.policies,
            self.metrics,
            read,
            lambda reason, note: self.told.append((reason, note)),
            clock=lambda: self.seconds,
        )

    def after(self, *offers: dict[str, str] | BinaryData | None) -> Kept:
        """Offers one after the other, each taken before the next comes."""

        async def run() -> None:
            work = asyncio.create_task(self.loader.run())
            for offer in offers:
                self.loader.loaded.clear()
                if isinstance(offer, BinaryData):
                    self.loader.offer(offer.data, offer.binary_keys)
                else:
                    self.loader.offer(offer)
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


def test_no_document_is_the_built_in_policy() -> None:
    kept = Kept().after(None)
    assert (kept.policies.active.policy.hash, kept.samples["policy_load_success",]) == ("builtin", 1.0)
    assert kept.samples["policy_info", "builtin"] == 1.0


def test_nothing_is_ready_before_the_first_look() -> None:
    loader = Kept().loader
    assert loader.problem == "the policy has not been read yet"


def test_good_document_is_used_and_its_hash_told() -> None:
    kept = Kept().after({"policy.yaml": GOOD})
    assert kept.rules == ["no-wildcards"]
    assert kept.samples["policy_info", kept.policies.active.policy.hash] == 1.0
    assert kept.loader.problem is None


def test_broken_document_leaves_the_last_good_one_in_use_and_is_told() -> None:
    kept = Kept().after({"policy.yaml": GOOD}, {"policy.yaml": BROKEN})
    assert (kept.rules, kept.samples["policy_load_success",]) == (["no-wildcards"], 0.0)
    ((reason, note),) = kept.told
    assert reason == "PolicyNotLoaded"
    assert "data[policy.yaml].rules[0].action: Unsupported value" in note


def test_broken_document_from_the_start_leaves_the_built_in_one() -> None:
    kept = Kept().after({"policy.yaml": BROKEN})
    assert (kept.policies.active.policy.hash, kept.samples["policy_load_success",]) == ("builtin", 0.0)
    assert kept.loader.problem is None, "a broken policy is no reason not to answer"


def test_broken_document_is_logged_every_five_minutes_until_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    """M7."""
    kept = Kept().after({"policy.yaml": BROKEN})
    for _ in range(10):
        kept.seconds += 60
        kept.loader.complain()
    records = [
        record for record in caplog.records if record.message == "policy not loaded; the current policy stays in use"
    ]
    assert [vars(record)["sinceSeconds"] for record in records] == [0, 300, 600]
    assert vars(records[2])["policyHash"] == "builtin"
    assert "Unsupported value" in vars(records[2])["errors"][0]
    mended = Kept().after({"policy.yaml": BROKEN}, {"policy.yaml": GOOD})
    caplog.clear()
    mended.seconds += 600
    mended.loader.complain()
    assert caplog.records == []


def test_mended_document_is_used_again() -> None:
    kept = Kept().after({"policy.yaml": BROKEN}, {"policy.yaml": OTHER})
    assert (kept.rules, kept.samples["policy_load_success",]) == (["some"], 1.0)


def test_deleted_document_is_the_built_in_policy_again() -> None:
    assert Kept().after({"policy.yaml": GOOD}, None).policies.active.policy.hash == "builtin"


def test_loss_of_a_policy_is_a_warning_and_an_event_and_its_absence_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """H2: also that of one that stayed in use beside a broken document."""
    caplog.set_level("INFO")
    assert Kept().after(None, {"policy.yaml": BROKEN}, None).told[1:] == []
    assert [record.levelname for record in caplog.records if "built-in" in record.message] == ["INFO", "INFO"]
    caplog.clear()
    kept = Kept().after({"policy.yaml": GOOD}, {"policy.yaml": BROKEN}, None)
    assert [reason for reason, _ in kept.told] == ["PolicyNotLoaded", "PolicyDeleted"]
    [record] = [record for record in caplog.records if "built-in" in record.message]
    assert record.levelname == "WARNING"
    assert record.__dict__["lastPolicyHash"] in kept.told[1][1]


def test_metrics_tell_the_mode_of_the_policy_in_use_and_its_pause() -> None:
    """H3: of what is in use, not of what was written last."""
    pause = f'{HEAD}mode: warn\npause: {{until: "2026-01-01T00:00:00Z"}}\n'
    relaxed = Kept().after({"policy.yaml": pause}, {"policy.yaml": BROKEN}).samples
    assert (relaxed["policy_mode", "warn"], relaxed["policy_pause_expiry_timestamp_seconds",]) == (1.0, 1767225600.0)
    strict = Kept().after({"policy.yaml": pause}, {"policy.yaml": GOOD}).samples
    assert (strict["policy_mode", "enforce"], strict["policy_pause_expiry_timestamp_seconds",]) == (1.0, 0.0)
    assert ("policy_mode", "warn") not in strict


@pytest.mark.parametrize("content", UNREADABLE)
def test_config_map_that_loses_its_policy_leaves_the_last_good_one_in_use(
    content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F11: the built-in policy allows every toleration."""
    offer, why = UNREADABLE[content]
    kept = Kept().after({"policy.yaml": GOOD}, offer)
    assert (kept.rules, kept.samples["policy_load_success",]) == (["no-wildcards"], 0.0)
    ((reason, note),) = kept.told
    assert (reason, why in note) == ("PolicyNotLoaded", True)
    (record,) = [each for each in caplog.records if each.message.startswith("policy not loaded")]
    assert vars(record)["errors"][0].startswith(why)
    assert kept.policies.state.failure.startswith(why)


@pytest.mark.parametrize("content", UNREADABLE)
def test_config_map_without_a_policy_from_the_start_is_a_broken_one(content: str) -> None:
    """F11: as any document that cannot be used."""
    kept = Kept().after(UNREADABLE[content][0])
    assert (kept.policies.active.policy.hash, kept.samples["policy_load_success",]) == ("builtin", 0.0)
    assert kept.loader.problem is None


def test_config_map_that_lost_its_policy_is_mended_by_a_document_or_by_its_deletion() -> None:
    """F11."""
    mended = Kept().after({"policy.yaml": GOOD}, {}, {"policy.yaml": OTHER})
    assert (mended.rules, mended.samples["policy_load_success",]) == (["some"], 1.0)
    deleted = Kept().after({"policy.yaml": GOOD}, {}, None)
    assert (deleted.policies.active.policy.hash, deleted.samples["policy_load_success",]) == ("builtin", 1.0)
    assert deleted.policies.state.failure == ""


def test_candidate_as_binary_data_is_one_that_cannot_be_tried() -> None:
    """F11's sibling."""
    kept = Kept().after(BinaryData(("candidate.yaml",), {"policy.yaml": GOOD}))
    assert (kept.rules, kept.samples["policy_load_success",]) == (["no-wildcards"], 1.0)
    assert kept.samples["policy_candidate_load_success",] == 0.0
    ((_, note),) = kept.told
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
    assert ("policy_candidate_load_success",) not in Kept().after({"policy.yaml": GOOD}).samples


def test_document_that_did_not_change_is_not_read_again() -> None:
    texts: list[str] = []

    def read(text: str, at: Any) -> Any:
        texts.append(text)
        return read_policy(text, at)

    Kept(read).after({"policy.yaml": GOOD}, {"policy.yaml": GOOD})
    assert texts == [GOOD]


def test_fault_of_ours_while_reading_is_a_broken_document() -> None:
    def read(text: str, at: Any) -> Any:
        raise ZeroDivisionError(text, at)

    kept = Kept(read).after({"policy.yaml": GOOD})
    assert (kept.policies.active.policy.hash, kept.samples["policy_load_success",]) == ("builtin", 0.0)


def test_only_rules_in_use_are_counted() -> None:
    kept = Kept().after({"policy.yaml": GOOD})
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
    assert [reason for reason, _ in kept.told] == ["ExceptionEndsSoon"] * told
    assert kept.samples["policy_exception_expiry_timestamp_seconds", "lab"] == (NOW + timedelta(days=days)).timestamp()


def test_policy_file_is_read_again_when_it_changes_and_kept_when_it_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    kept = Kept()

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():  # noqa: ASYNC110 -- nothing tells of a swap
                await asyncio.sleep(0.01)

    async def run() -> None:
        work = asyncio.create_task(kept.loader.run())
        watch = asyncio.create_task(watch_file(path, kept.loader))
        await until(lambda: kept.rules == ["no-wildcards"])
        path.write_text(OTHER)
        await until(lambda: kept.rules == ["some"])
        path.unlink()
        await until(lambda: not kept.metrics.load_success)
        assert kept.rules == ["some"]
        path.write_text(OTHER)
        await until(lambda: kept.metrics.load_success)
        watch.cancel()
        work.cancel()

    asyncio.run(run())


def test_f12_policy_file_that_becomes_a_pipe_is_reported_and_does_not_end_the_watch(tmp_path: Path) -> None:
    path, mounted = tmp_path / "policy.yaml", tmp_path / "data"
    mounted.write_text(GOOD)
    path.symlink_to(mounted)  # as a mounted ConfigMap has it
    kept = Kept()

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():  # noqa: ASYNC110 -- the loader sets no event when it swaps
                await asyncio.sleep(0.01)

    async def run() -> None:
        work = asyncio.create_task(kept.loader.run())
        watch = asyncio.create_task(watch_file(path, kept.loader))
        await until(lambda: kept.rules == ["no-wildcards"])
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").replace(path)
        await until(lambda: not kept.metrics.load_success)
        path.unlink()
        path.write_text(OTHER)
        await until(lambda: kept.rules == ["some"])
        watch.cancel()
        work.cancel()

    asyncio.run(run())


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
        async with asyncio.timeout(SECONDS):
            while not read:  # noqa: ASYNC110 -- a thread says so
                await asyncio.sleep(0.001)
            for document in (BROKEN, OTHER):
                kept.loader.offer({"policy.yaml": document})
            go_on.set()
            while kept.rules != ["some"]:  # noqa: ASYNC110 -- the loader tells nobody when it swaps
                await asyncio.sleep(0.001)
        work.cancel()

    asyncio.run(run())
    assert read == [GOOD, OTHER]
    assert kept.told == []
