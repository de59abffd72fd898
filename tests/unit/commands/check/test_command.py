from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import (
    VALID_MANIFESTS,
    make_claim,
    make_toleration,
)
from tests.unit.commands.check_runner import RULE, CheckRunner, findings
from webhook.commands import check
from webhook.commands.shared.main import main_of

# --- text and exit codes ------------------------------------------------------------------------


def test_a_good_manifest_gives_zero(run: CheckRunner) -> None:
    assert run(rule=RULE) == (0, "1 file, 1 object: 0 errors, 0 warnings\n")


def test_errors_give_one_and_stand_where_they_are(run: CheckRunner) -> None:
    code, output = run(rule="# ours\n---\n" + RULE.replace("NoSchedule", "Evict").replace("unhealthy", "-"))
    assert code == 1
    first, second, summary = output.splitlines()
    assert first.startswith('rule.yaml:11:10: error: spec.taint.key: Invalid value: "gpu.example.com/-": name part')
    assert second == (
        'rule.yaml:12:13: error: spec.taint.effect: Unsupported value: "Evict": '
        'supported values: "NoExecute", "NoSchedule", "None"'
    )
    assert summary == "1 file, 1 object: 2 errors, 0 warnings"


def test_a_missing_field_stands_where_its_parent_does(run: CheckRunner) -> None:
    code, output = run(rule=RULE.replace("    effect: NoSchedule\n", ""))
    assert (code, output.splitlines()[0]) == (1, "rule.yaml:9:5: error: spec.taint.effect: Required value")


def test_warnings_give_zero(run: CheckRunner) -> None:
    code, output = run(claim=make_claim([make_toleration(effect=None)]))
    assert code == 0
    assert output.splitlines()[0].endswith(
        "warning: spec.devices.requests[0].exactly.tolerations[0].effect: is empty: allocation takes that for all "
        "effects, but in-tree eviction does not; name NoExecute too [DT001]"
    )
    assert output.endswith("1 file, 1 object: 0 errors, 1 warning\n")


def test_documented_rules_are_errors(run: CheckRunner) -> None:
    code, output = run("-o", "json", claim=make_claim([make_toleration(key=None, operator="Equal", value="x")]))
    assert code == 1
    assert findings(output) == [("error", "spec.devices.requests[0].exactly.tolerations[0].operator", None)]


def test_unreadable_input_gives_two_and_the_rest_is_judged(run: CheckRunner) -> None:
    code, output = run("missing.yaml", rule=f"{RULE}---\n[\n---\n{RULE.replace('NoSchedule', 'x')}")
    assert code == 2
    missing, invalid, unreadable, summary = output.splitlines()
    assert missing == "missing.yaml: error: cannot be read: No such file or directory"
    assert invalid.startswith("rule.yaml:13:1: error: not YAML: ")
    assert unreadable.startswith(
        'rule.yaml:23:13: error: DeviceTaintRule gpu-7: spec.taint.effect: Unsupported value: "x"'
    )
    assert summary == "2 files, 2 objects: 1 error, 0 warnings, 2 unreadable"


def test_duplicate_keys_are_errors(run: CheckRunner) -> None:
    code, output = run(rule=RULE + "    effect: NoExecute\n")
    assert code == 1
    assert output.splitlines()[0] == (
        'rule.yaml:11:5: error: spec.taint.effect: duplicate key "effect", already on line 10; the last one counts'
    )


def test_unknown_fields_stand_at_their_key(run: CheckRunner) -> None:
    code, output = run(rule=RULE + "    vaule: x\n")
    assert (code, output.splitlines()[0]) == (
        1,
        'rule.yaml:11:5: error: spec.taint.vaule: Forbidden: unknown field, did you mean "value"?',
    )


@pytest.mark.parametrize("manifest", VALID_MANIFESTS.values(), ids=VALID_MANIFESTS)
def test_valid_manifests_pass(manifest: Any, run: CheckRunner) -> None:
    code, output = run("-o", "json", one=manifest)
    assert (code, findings(output)) == (0, [])


# --- robustness and start -----------------------------------------------------------------------

NASTY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["NoExecute", "Exists", "\ud800"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_judged_or_told(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    assert main_of(check, ["-v", str(path)]) in (0, 1, 2)
    assert capsys.readouterr().out.endswith("\n")


@given(name=st.sampled_from(sorted(VALID_MANIFESTS)), data=st.data(), nasty=NASTY)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_objects_with_anything_anywhere_are_judged_or_told(
    name: str, data: st.DataObject, nasty: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads(json.dumps(VALID_MANIFESTS[name]))
    at = manifest
    while True:
        steps = list(at) if isinstance(at, dict) else list(range(len(at)))
        step = data.draw(st.sampled_from(steps))
        if not isinstance(at[step], dict | list) or not at[step] or data.draw(st.booleans()):
            at[step] = nasty
            break
        at = at[step]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(manifest))
    assert main_of(check, ["-o", data.draw(st.sampled_from(["text", "json", "yaml", "junit"])), str(path)]) in (0, 1, 2)
    capsys.readouterr()


HEAVY = ("aiohttp", "celpy", "cryptography", "jsonschema", "kubernetes", "prometheus_client", "uvloop")


def test_a_check_starts_without_what_other_verbs_need(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(RULE)
    code = "import sys; from webhook.cli import main; code = main(); print(*sys.modules); sys.exit(code)"
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    command = [sys.executable, "-c", code, "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=unmeasured)
    report, modules = done.stdout.splitlines()
    loaded = {name.partition(".")[0] for name in modules.split()}
    assert report == "1 file, 1 object: 0 errors, 0 warnings"
    assert "yaml" in loaded
    assert loaded.isdisjoint({*HEAVY, "asyncio", "ssl", "xml"}), loaded & {*HEAVY, "asyncio", "ssl", "xml"}
