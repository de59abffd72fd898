"""YAML means to check what it means to kubectl, which reads files with the same library as the API server."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.builders import make_claim, make_meta, make_toleration
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from webhook.commands import check
from webhook.commands.shared.main import main_of
from webhook.commands.shared.words import as_taint_pattern, as_taint_specs
from webhook.files.read import parse

Read: TypeAlias = Callable[[str], Any]

_INT64 = range(-(2**63), 2**63)
_SEED = 20260601
# What numbers, words and times are made of.
_ALPHABET = "0123456789+-._eExXoObB~ynNaifTtrulsFfdSpPhHYO01_"
_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d{0,30})(\.\d+)?([eE][-+]?\d{1,2})?")
_NOT_FINITE = frozenset({".nan", ".NaN", ".NAN", *(f"{s}.{w}" for s in ("", "+", "-") for w in ("inf", "Inf", "INF"))})


@pytest.fixture(scope="module")
def kubectl(assets: Assets) -> Read:
    """What kubectl makes of a manifest's field `data`. It asks no server."""

    def read(data: str) -> Any:
        manifest = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\n{data}"
        printed = _printed(assets, manifest.encode())
        return None if printed is None else json.loads(printed)["data"]

    return read


def _printed(assets: Assets, manifests: bytes) -> str | None:
    """What kubectl prints of manifests as JSON; None if it cannot read one of them."""
    command = [str(assets.program("kubectl")), "annotate", "--local", "-f", "-", "-o", "json", "a=b"]
    done = subprocess.run(command, input=manifests, capture_output=True, check=False, timeout=300)
    return None if done.returncode else done.stdout.decode()


def ours(data: str) -> Any:
    file = parse("x", f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\n{data}".encode())
    if file.unreadable:
        return None
    (manifest,) = file.manifests
    return _as_kubectl(manifest.value["data"])


def _as_kubectl(value: Any) -> Any:
    """Kubectl keeps integers of more than 64 bits as floats."""
    if isinstance(value, dict):
        return {key: _as_kubectl(entry) for key, entry in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INT64:
        return float(value)
    return value


def _comparable(value: Any) -> Any:
    """Values with their types, as 1 and true and 1.0 compare equal; a large float prints without a point."""
    if isinstance(value, dict):
        return {key: _comparable(entry) for key, entry in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INT64:
        value = float(value)
    return type(value), value


def scalars(number: int) -> list[str]:
    chance = random.Random(_SEED)
    found: list[str] = []
    while len(found) < number:
        text = "".join(chance.choices(_ALPHABET, k=chance.randint(1, 7)))
        if text not in _NOT_FINITE and text.strip("-"):  # dashes alone are syntax
            found.append(text)
    return found


WORDS = (
    *("y", "Y", "yes", "Yes", "YES", "yEs", "on", "On", "ON", "true", "True", "TRUE", "n", "no", "off", "false", "OFF"),
    *("~", "null", "Null", "NULL", "nUll", "none", "=", "<"),
    *("0", "-0", "+0", "00", "08", "017", "0o17", "0O17"),
    *("0x1F", "0X1f", "0b11", "0B11", "-0x1F", "+0o7", "0o8", "0b2"),
    *("1_000", "1__0_", "0_17", "0x_f", "_1", "-_1", "1.5_0", "._5"),
    *("12:30:45", "190:20:30", "2026-06-01", "2026-06-01T12:00:00Z", "2001-12-14t21:59:43.10-05:00", "2026-6-1"),
    *("1.0", "1.", ".5", "-.5", "+.5", "1e3", "1E3", "1e+3", "1e-3", "1e", "e1", "1.2.3", "0.1", "1.10", "-0.0"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615"),
    *("18446744073709551616", "-9223372036854775809"),
    *("1e20", "1e21", "1e308", "1e309", "1152921504606846976.0", "9007199254740993", "9007199254740993.0", "1e-7"),
    *("0xffffffffffffffff", "0x1ffffffffffffffff", "0" + "7" * 21, "0" + "7" * 22, "9" * 400),
    *('"yes"', "'5'", "!!str 5", "! 5", "!!float 5", "!!int '7'", "!!bool yes", "!!null ''"),
)


def test_unquoted_text_means_the_same(kubectl: Read) -> None:
    texts = [*WORDS, *scalars(3000)]
    data = "data:\n" + "".join(f"  k{position}: {text}\n" for position, text in enumerate(texts))
    theirs, mine = kubectl(data), ours(data)
    assert theirs is not None
    assert mine is not None
    different = {
        text: (theirs[f"k{position}"], mine[f"k{position}"])
        for position, text in enumerate(texts)
        if _comparable(theirs[f"k{position}"]) != _comparable(mine[f"k{position}"])
    }
    assert different == {}


def test_numbers_of_json_mean_the_same(assets: Assets) -> None:
    numbers = [text for text in (*WORDS, "1.50E+2", "0e5", "123456789012345678.0") if _JSON_NUMBER.fullmatch(text)]
    manifest = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {%s}}'
    text = manifest % ", ".join(f'"k{position}": {number}' for position, number in enumerate(numbers))
    theirs = json.loads(_printed(assets, text.encode()) or "{}")["data"]
    mine = parse("x", text.encode()).manifests[0].value["data"]
    assert {number: _comparable(mine[f"k{position}"]) for position, number in enumerate(numbers)} == {
        number: _comparable(theirs[f"k{position}"]) for position, number in enumerate(numbers)
    }


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_whole_numbers_are_what_a_server_takes_of_them(
    suffix: str, plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = ["60", "60.0", "6e1", "60.5", "-0.0", "-1e3", "1e18", "1e19", "1e21", "true", "null"]
    limit = ("9223372036854775807", "9223372036854775808", "-9223372036854775808")
    numbers += ['"60"', "123456789012345678.0", *limit, *[f"{each}.0" for each in limit]]
    for position, number in enumerate(numbers):
        toleration = make_toleration(effect="NoExecute", tolerationSeconds=4711)
        claim = json.dumps(make_claim([toleration], meta=make_meta(f"c{position}", namespace="default")))
        (tmp_path / f"{position:02}.{suffix}").write_text(claim.replace("4711", number))
    created = plane.kubectl("create", "--dry-run=server", "-o", "name", "-f", tmp_path).stdout.split()
    taken = {numbers[int(each.rpartition("/c")[2])] for each in created}
    main_of(check, [str(tmp_path), "-o", "json"])
    objects = json.loads(capsys.readouterr().out)["objects"]
    assert taken == {numbers[int(each["name"][1:])] for each in objects if each["result"] == "allowed"}
    assert len(numbers) // 3 < len(taken) < len(numbers)


_ONE, _TWO = (f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n" for name in ("one", "two"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"\ufeff{_ONE}---\n\ufeff{_TWO}", id="before each document"),
        pytest.param(f"\ufeff---\n{_ONE}---\n\ufeff---\n{_TWO}", id="before lines of ---"),
        pytest.param(f"---\n# one\n\n\ufeff{_ONE}--- # two\n\ufeff# more\n{_TWO}", id="beside comments"),
        pytest.param(
            f'{_ONE}---\n\ufeff{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{}}}}', id="before JSON"
        ),
        pytest.param(f"{_ONE}\ufeff---\n{_TWO}", id="joined without a line of ---"),
        pytest.param(f"{_ONE}---\n \ufeff{_TWO}", id="behind a blank"),
        pytest.param(f"{_ONE}---\n\ufeff\ufeff{_TWO}", id="two of them"),
    ],
)
def test_byte_order_marks_mean_the_same(text: str, end: str, assets: Assets) -> None:
    written = text.replace("\n", end).encode()
    theirs = _printed(assets, written)
    file = parse("x", written)
    assert bool(file.unreadable) == (theirs is None)
    assert theirs is None or theirs.count('"kind": "ConfigMap"') == len(file.manifests) == 2


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("data: {on: 1, 5: 2, 0x10: 3, 'on': 4, no: 5}", id="keys that are no text"),
        pytest.param("b: &b {k: 1, m: 2}\ndata: {<<: *b, k: 9}", id="a merge first"),
        pytest.param("b: &b {k: 1, m: 2}\ndata: {k: 9, <<: *b}", id="a merge last overwrites"),
        pytest.param("b: &b {k: 1}\nc: &c {k: 2, l: 3}\ndata: {<<: [*b, *c]}", id="two merges: the first wins"),
        pytest.param("data: {a: &x [1, {b: 2}], c: *x}", id="an alias"),
        pytest.param("data: {a: &x 1, b: &x 2, c: *x}", id="an anchor set anew"),
        pytest.param("data:\n  a: |\n    x\n    y\n  b: >-\n    x\n    y\n  c: 'x\n\n    y'", id="blocks of text"),
        pytest.param("data: {a: 1, a: 2}", id="a duplicate key: the last one counts"),
        pytest.param('data: {a: "\\x41\\u00e9\\t"}', id="escapes"),
        pytest.param("data: {a: , b: ~}", id="nulls"),
        pytest.param("data:\r\n  a: 1\r\n", id="Windows line ends"),
    ],
)
def test_structure_means_the_same(data: str, kubectl: Read) -> None:
    theirs = kubectl(data)
    assert theirs is not None
    assert _comparable(ours(data)) == _comparable(theirs)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("data: {~: 1}", id="null as a key"),
        pytest.param("data: {[a]: 1}", id="a list as a key"),
        pytest.param("data: {a: .nan}", id="NaN"),
        pytest.param("data: {a: !!int x}", id="a tag that does not fit"),
        pytest.param("data: {a: *x}", id="an alias of nothing"),
        pytest.param("data: {a: &x [*x]}", id="an anchor that contains itself"),
        pytest.param("data: {<<: 1}", id="a merge of a number"),
        pytest.param("data: {a: 'x}", id="broken"),
        pytest.param("data: " + "[" * 20_000, id="deep"),
    ],
)
def test_what_kubectl_cannot_read_is_not_read(data: str, kubectl: Read) -> None:
    assert kubectl(data) is None
    assert ours(data) is None


# --- taints on a command line -------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "-"])
@pytest.mark.parametrize(
    "taints",
    [
        *(["k"], ["k=v"], ["k="], ["="], ["k:"], [":NoSchedule"], ["=v:NoSchedule"], ["a=b=c:NoSchedule"]),
        *(["k:NoSchedule"], ["k=:NoSchedule"], ["k=v:NoSchedule"], ["x.y/k=v:NoExecute"], ["K_a.b=V:NoSchedule"]),
        *(["a/b/c:NoSchedule"], ["/k:NoSchedule"], ["x/:NoSchedule"], ["X/k:NoSchedule"], ["-k:NoSchedule"]),
        *(["k=a b:NoSchedule"], ["k=-v:NoSchedule"], ["k=v-:NoSchedule"], ["k=é:NoSchedule"], ["k:NoSchedule=v"]),
        *(["a:b:NoSchedule"], ["k:noschedule"], [f"{'k' * 64}:NoSchedule"], [f"k={'v' * 64}:NoSchedule"], [""]),
        *(["k:NoSchedule"] * 2, ["k:NoSchedule", "k=v:NoSchedule"], ["k:NoSchedule", "k:NoExecute"], ["k", "k"]),
    ],
)
def test_taints_are_spelled_as_those_of_nodes(taints: list[str], end: str, assets: Assets) -> None:
    words = [f"{each}{end}" for each in taints]
    # It reads its words before it asks the server, which is not there.
    command = [str(assets.program("kubectl")), "--server=http://127.0.0.1:1", "taint", "nodes", "n", "--", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    try:
        found = [as_taint_pattern(each) for each in words] if end else as_taint_specs(words)
    except ValueError:
        found = []
    assert bool(found) == ("127.0.0.1:1 was refused" in done.stderr), done.stderr
