"""What verbs import before they begin: it is most of the time that a small command takes. Counted, never timed."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Final

import pytest

from webhook.commands.verbs import VERBS

HEAVY: Final = frozenset(
    {"aiohttp", "asyncio", "celpy", "cryptography", "jsonschema", "kubernetes", "prometheus_client", "uvloop"}
)
READ_FILES: Final = frozenset({"audit", "check", "export-vap", "test"})
"""Verbs whose flags stand beside what they run."""
NEVER_AT_A_GLANCE: Final = frozenset({"celpy", "cryptography", "jsonschema", "kubernetes", "prometheus_client"})
MOST_MODULES: Final = 60
ASK: Final = """
import contextlib, io, sys, webhook.cli
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.suppress(SystemExit):
    {call}
print(*sys.modules, sep=chr(10))
"""


@cache
def imported_by(call: str) -> frozenset[str]:
    """The modules that are there after a call in a new process."""
    command = [sys.executable, "-c", ASK.format(call=call)]
    return frozenset(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def packages(modules: frozenset[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_imports_no_heavy_library(verb: str) -> None:
    assert not packages(imported_by(f"webhook.cli.main([{verb!r}, '--help'])")) & HEAVY


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in READ_FILES])
def test_help_of_a_verb_imports_its_flags_and_little_else(verb: str) -> None:
    modules = imported_by(f"webhook.cli.main([{verb!r}, '--help'])")
    assert len([name for name in modules if name.startswith("webhook")]) < MOST_MODULES
    assert "yaml" not in modules


@pytest.mark.parametrize("words", [[], ["--version"], ["chekc"], ["status", "--wtach"], ["status", "--limit", "x"]])
def test_wrong_usage_and_the_version_import_little_else(words: list[str]) -> None:
    modules = imported_by(f"webhook.cli.main({words!r})")
    assert not packages(modules) & {*HEAVY, "yaml"}


@pytest.mark.parametrize("body", ["explain.values", "status.run"])
def test_looking_at_a_cluster_imports_no_library_that_only_servers_and_policies_need(body: str) -> None:
    modules = imported_by(f"import webhook.commands.{body}, webhook.commands.shared.snapshot")
    assert "aiohttp" in modules
    assert not packages(modules) & NEVER_AT_A_GLANCE
    assert "webhook.admission.chain" not in modules, "a review of a policy needs no review of claims"
    assert "webhook.eviction.core" not in modules, "the worker's own machinery"


@pytest.mark.parametrize(("words", "waits"), [("schema policy", True), ("serve --help", False)])
def test_only_what_ends_after_one_answer_seldom_looks_for_garbage(words: str, *, waits: bool) -> None:
    note = "sys.modules[f'threshold.{gc.get_threshold()[0]}'] = gc"
    call = f"import gc; sys.argv[1:] = {words.split()!r}; webhook.cli.main(); {note}"
    assert (imported_by(call) & {"threshold.700", "threshold.50000"} == {"threshold.50000"}) is waits
