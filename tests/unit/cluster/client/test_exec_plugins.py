"""Exec plugins of a kubeconfig: their input, their output, and how they speak to the user."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from tests.unit.cluster.peer import until
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import NoCredentials

NEITHER = "neither a token nor a certificate with its key"
VERSION = "client.authentication.k8s.io/v1"


def with_plugin(folder: Path, code: str, **fields: Any) -> KubeConfig:
    """A kubeconfig whose plugin runs that code, with `answer(status)` at hand."""
    answer = (
        "import json, os, sys\n"
        "def answer(status):\n"
        f"    print(json.dumps(dict(apiVersion={VERSION!r}, kind='ExecCredential', status=status)))\n"
    )
    plugin = {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", answer + code], **fields}
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": plugin, "token": "old"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(content))
    return KubeConfig(str(path))


async def test_what_a_plugin_says_on_stderr_reaches_the_user_in_any_length(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "print('sign in with CODE', 'w' * 1_000_000, file=sys.stderr)\nanswer({'token': 't'})\n"
    assert (await with_plugin(tmp_path, code).load()).authorization == "Bearer t"
    assert capfd.readouterr().err.startswith("sign in with CODE www")


async def test_plugin_has_its_variables_and_knows_its_version_and_that_it_cannot_ask(tmp_path: Path) -> None:
    code = "answer({'token': os.environ['MINE'] + os.environ['KUBERNETES_EXEC_INFO'] + sys.stdin.read()})"
    access = await with_plugin(tmp_path, code, env=[{"name": "MINE", "value": "x"}]).load()
    info = {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert access.authorization == f"Bearer x{json.dumps(info)}"


async def test_token_of_the_file_is_not_sent_beside_a_certificate(tmp_path: Path) -> None:
    code = "answer({'clientCertificateData': 'c', 'clientKeyData': 'k'})"
    assert (await with_plugin(tmp_path, code).load()).authorization is None


@pytest.mark.parametrize("none", [None, ""])
async def test_token_is_enough_beside_a_certificate_that_is_empty(tmp_path: Path, none: str | None) -> None:
    code = f"answer({{'token': 't', 'clientCertificateData': {none!r}, 'clientKeyData': {none!r}}})"
    assert (await with_plugin(tmp_path, code).load()).authorization == "Bearer t"


async def test_plugin_ends_with_the_call_that_waits_for_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"import pathlib, time\npathlib.Path({str(file)!r}).write_text(str(os.getpid()))\ntime.sleep(60)"
    call = asyncio.create_task(with_plugin(tmp_path, code).load())
    await until(lambda: file.exists() and file.read_text() != "", "the plugin")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not Path("/proc", file.read_text()).exists(), "its end")


@table(
    "code, fields, why",
    {
        "no status": (f"print(json.dumps(dict(apiVersion={VERSION!r})))", {}, "missing key 'status'"),
        "no JSON": ("print('hello')", {}, "failed to decode process output: Expecting value"),
        "no credentials": ("answer({})", {}, NEITHER),
        "null": ("answer({'token': None})", {}, NEITHER),
        "empty": ("answer({'token': '', 'clientCertificateData': '', 'clientKeyData': ''})", {}, NEITHER),
        "no key": ("answer({'token': 't', 'clientCertificateData': 'c'})", {}, NEITHER),
        "null as key": ("answer({'clientCertificateData': 'c', 'clientKeyData': None})", {}, NEITHER),
        "no certificate": ("answer({'token': 't', 'clientKeyData': 'k'})", {}, NEITHER),
        "a list in place of the status": ("answer([])", {}, "answer or its status is no object"),
        "another version": ("answer({'token': 't'})", {"apiVersion": "v2"}, f"plugin api version {VERSION} does not"),
        "a list": ("print('[]')", {}, "answer or its status is no object"),
        "no text": ("sys.stdout.buffer.write(b'\\xff')", {}, "'utf-8' codec"),
        "a failure": ("sys.exit(3)", {}, "process returned 3"),
        "odd arguments": ("", {"args": [1]}, "expected str"),
        "odd variables": ("", {"env": [{"name": "a"}]}, "missing key 'value'"),
    },
)
async def test_plugin_that_gives_no_credentials_ends_the_matter(
    tmp_path: Path, code: str, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(NoCredentials, match=rf"config: exec: {why}"):
        await with_plugin(tmp_path, code, **fields).load()
