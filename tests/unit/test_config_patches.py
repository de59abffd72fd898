"""How `serve` is asked to follow patches."""

from __future__ import annotations

import pytest

from tests.unit.test_config import faults, parse


@pytest.mark.parametrize(
    ("arguments", "watched", "account"),
    [
        ((), False, ""),
        (("--watch-patches",), True, ""),
        (("--patch-account=ops:bot",), True, "ops:bot"),
        (("--patch-account=bot", "--namespace=here"), True, "system:serviceaccount:here:bot"),
    ],
)
def test_patches_are_followed_if_asked_for_or_if_there_is_a_controller(
    arguments: tuple[str, ...],
    watched: bool,  # noqa: FBT001 -- pytest fills it
    account: str,
) -> None:
    settings = parse("--cert-dir=/certs", *arguments)
    assert (settings.watch_patches, settings.patch_account) == (watched, account)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            ("--standalone", "--watch-patches"),
            "--watch-patches: Invalid value: true: may not be given together with --standalone",
        ),
        (
            ("--standalone", "--patch-account=ops"),
            '--patch-account: Invalid value: "ops": may not be given together with --standalone',
        ),
    ],
)
def test_patches_are_those_of_a_cluster(arguments: tuple[str, ...], fault: str) -> None:
    assert faults("--cert-dir=/certs", *arguments) == [fault]
