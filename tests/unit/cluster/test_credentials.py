"""Where credentials come from: the files of a pod, and kubeconfigs of several sorts."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from webhook.certificates.authority import Authority
from webhook.cluster.client import _proxy_for
from webhook.cluster.credentials import InCluster, KubeConfig
from webhook.cluster.errors import NoCredentials

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def authority() -> Authority:
    return Authority.create("test CA", now=datetime.now(UTC), lifetime=timedelta(days=1))  # noqa: TID251 -- TLS asks


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "ca.crt").write_bytes(authority().certificate)
    return tmp_path


def test_pod_finds_server_ca_and_token(pod: Path) -> None:
    access = asyncio.run(InCluster(ENVIRONMENT, pod).load())
    assert (access.server, access.authorization) == ("https://10.0.0.1:443", "Bearer abc")
    assert "abc" not in repr(access)
    assert access.tls is not None
    assert access.tls.cert_store_stats()["x509_ca"] == 1


def test_pod_in_an_ipv6_cluster(pod: Path) -> None:
    environment = {**ENVIRONMENT, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert asyncio.run(InCluster(environment, pod).load()).server == "https://[fd00::1]:443"


def test_token_of_a_pod_goes_by_no_proxy_that_the_environment_names(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: where every pod is given one, it would be sent there."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    assert _proxy_for(asyncio.run(InCluster(ENVIRONMENT, pod).load())) == (None, None)


def test_new_token_keeps_connections_and_a_new_ca_does_not(pod: Path) -> None:
    async def test() -> None:
        credentials = InCluster(ENVIRONMENT, pod)
        first = await credentials.load()
        assert await credentials.load() == first
        (pod / "token").write_text("def")
        second = await credentials.load()
        assert (second.tls, second.authorization) == (first.tls, "Bearer def")
        (pod / "ca.crt").write_bytes(authority().certificate)
        assert (await credentials.load()).tls is not first.tls

    asyncio.run(test())


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("token", None, "token: .*No such file"),
        ("token", b" \n", "token: empty"),
        ("token", b"\xff", "token: "),
        ("ca.crt", None, "ca.crt: .*No such file"),
        ("ca.crt", b"no PEM", "ca.crt: not PEM"),
    ],
)
def test_files_that_are_not_right_are_named(pod: Path, name: str, content: bytes | None, why: str) -> None:
    if content is None:
        (pod / name).unlink()
    else:
        (pod / name).write_bytes(content)
    with pytest.raises(NoCredentials, match=why):
        asyncio.run(InCluster(ENVIRONMENT, pod).load())


def test_outside_a_cluster_it_says_so(pod: Path) -> None:
    with pytest.raises(NoCredentials, match="not in a cluster"):
        asyncio.run(InCluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, pod).load())


# --- kubeconfig -------------------------------------------------------------------------------------


def kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> str:
    """Two contexts, of which `here` is the current one. JSON is YAML."""
    ca = base64.b64encode(authority().certificate).decode()
    path = folder / "config"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [
                    {"name": "here", "context": {"cluster": "one", "user": "me"}},
                    {"name": "there", "context": {"cluster": "two", "user": "me"}},
                ],
                "clusters": [
                    {
                        "name": "one",
                        "cluster": {"server": "https://one.test:6443/", "certificate-authority-data": ca, **cluster},
                    },
                    {"name": "two", "cluster": {"server": "http://two.test:8001/proxy"}},
                ],
                "users": [{"name": "me", "user": user}],
            }
        )
    )
    return str(path)


def test_kubeconfig_gives_the_current_context_unless_told_otherwise(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "abc"}, **{"tls-server-name": "kubernetes", "proxy-url": "http://proxy:1"})
    access = asyncio.run(KubeConfig(path).load())
    assert (access.server, access.authorization) == ("https://one.test:6443", "Bearer abc")
    assert (access.server_name, access.proxy) == ("kubernetes", "http://proxy:1")
    assert access.tls is not None
    assert access.tls.check_hostname
    other = asyncio.run(KubeConfig(path, "there").load())
    assert (other.server, other.tls, other.proxy) == ("http://two.test:8001/proxy", None, None)


def test_kubeconfig_with_a_file_of_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    path = kubeconfig(tmp_path, {"tokenFile": "token"})
    assert asyncio.run(KubeConfig(path).load()).authorization == "Bearer abc"


def test_kubeconfig_with_a_client_certificate(tmp_path: Path) -> None:
    pair = authority().serving_pair(["me"], now=datetime.now(UTC), lifetime=timedelta(hours=1))  # noqa: TID251
    data = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    access = asyncio.run(KubeConfig(kubeconfig(tmp_path, data)).load())
    assert access.authorization is None
    assert access.tls is not None


def test_kubeconfig_asks_its_plugin_each_time_it_is_loaded(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, pathlib\n"
        f"counter = pathlib.Path({str(counter)!r})\n"
        "calls = len(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text('x' * calls)\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f'token-{calls}'}}))\n"
    )
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(script)]}
    credentials = KubeConfig(kubeconfig(tmp_path, {"exec": {**plugin, "interactiveMode": "Never"}}))

    async def test() -> list[str | None]:
        return [(await credentials.load()).authorization for _ in range(2)]

    assert asyncio.run(test()) == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        ({"command": "/no/such-plugin"}, "No such file or directory: '/no/such-plugin'"),
        ({"command": sys.executable, "args": ["-c", "exit('log in first')"]}, r"process returned 1.*log in first"),
        ({"command": sys.executable, "args": ["-c", "print('no JSON')"]}, "failed to decode process output"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"token": "old"}], ids=["alone", "beside a token"])
def test_plugin_that_fails_ends_the_matter(
    tmp_path: Path, plugin: dict[str, Any], why: str, more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """L2: without credentials the API server would be asked as a stranger, and say no for another reason."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **plugin}, **more}
    with pytest.raises(
        NoCredentials, match=rf"config: the exec plugin of the user gave no credentials: .*{why}"
    ) as raised:
        asyncio.run(KubeConfig(kubeconfig(tmp_path, user)).load())
    assert "Errno" not in str(raised.value)
    assert caplog.records == []


def test_kubeconfig_that_is_not_there_is_said_to_be_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """L3: and in the error, not in a line of the log."""
    with pytest.raises(NoCredentials, match=r"/nowhere: no such file$"):
        asyncio.run(KubeConfig(str(tmp_path / "nowhere")).load())
    assert caplog.records == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param("", id="empty"),
        pytest.param("a: [", id="not YAML"),
        pytest.param("[1, 2]", id="a list"),
        pytest.param("current-context: x", id="no contexts"),
        pytest.param("contexts: 5\nclusters: text\n", id="other types"),
    ],
)
def test_kubeconfig_that_is_not_right_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(NoCredentials, match="config: "):
        asyncio.run(KubeConfig(str(path)).load())


def test_pods_do_not_load_the_generated_client() -> None:
    """It would be 17 MiB and 0.3 s for two environment variables and two files."""
    imports = "import webhook.cluster.names, webhook.cluster.policies, webhook.cluster.secrets, webhook.cluster.writer"
    code = f"{imports}, sys; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
