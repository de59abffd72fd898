"""Where credentials come from: the files of a pod, and kubeconfigs; and acting as another user."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.peer import Answer, Fixed, Peer
from webhook.certificates.authority import Authority
from webhook.cluster.client.connections import Proxy
from webhook.cluster.client.credentials import Access, Impersonation, InCluster, KubeConfig, find_credentials
from webhook.cluster.client.errors import NoCredentials
from webhook.cluster.client.rest import Cluster

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
    in_ipv6 = {**ENVIRONMENT, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert asyncio.run(InCluster(in_ipv6, pod).load()).server == "https://[fd00::1]:443"


def test_token_of_a_pod_goes_by_no_proxy_that_the_environment_names(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: where every pod is given one, it would be sent there."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    assert Proxy.of(asyncio.run(InCluster(ENVIRONMENT, pod).load())) == (None, None)


async def test_new_token_keeps_connections_and_a_new_ca_does_not(pod: Path) -> None:
    credentials = InCluster(ENVIRONMENT, pod)
    first = await credentials.load()
    assert await credentials.load() == first
    (pod / "token").write_text("def")
    second = await credentials.load()
    assert (second.tls, second.authorization) == (first.tls, "Bearer def")
    (pod / "ca.crt").write_bytes(authority().certificate)
    assert (await credentials.load()).tls is not first.tls


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("token", None, "token: .*No such file"),
        ("token", b" \n", "token: empty"),
        ("token", b"\xff", "token: "),
        ("ca.crt", None, "ca.crt: .*No such file"),
        ("ca.crt", b"no PEM", "ca.crt: cannot be read"),
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


def written(path: Path, clusters: dict[str, Any], contexts: dict[str, str], user: Any, current: str) -> str:
    """A kubeconfig with one user, and clusters by context. JSON is YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "contexts": [{"name": name, "context": {"cluster": of, "user": "me"}} for name, of in contexts.items()],
        "clusters": [{"name": name, "cluster": cluster} for name, cluster in clusters.items()],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(json.dumps({**content, "current-context": current} if current else content))
    return str(path)


def kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> str:
    """Two contexts, of which `here` is the current one."""
    ca = base64.b64encode(authority().certificate).decode()
    one = {"server": "https://one.test:6443/", "certificate-authority-data": ca, **cluster}
    clusters = {"one": one, "two": {"server": "http://two.test:8001/proxy"}}
    return written(folder / "config", clusters, {"here": "one", "there": "two"}, user, "here")


def test_kubeconfig_gives_the_current_context_unless_told_otherwise(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "abc"}, **{"tls-server-name": "kubernetes", "proxy-url": "http://proxy:1"})
    access = asyncio.run(KubeConfig(path).load())
    assert (access.server, access.authorization) == ("https://one.test:6443", "Bearer abc")
    assert (access.server_name, access.proxy) == ("kubernetes", "http://proxy:1")
    assert access.tls is not None
    assert access.tls.check_hostname
    other = asyncio.run(KubeConfig(path, "there").load())
    assert (other.server, other.tls, other.proxy) == ("http://two.test:8001/proxy", None, None)


def test_kubeconfig_with_a_client_certificate(tmp_path: Path) -> None:
    pair = authority().serving_pair(["me"], now=datetime.now(UTC), lifetime=timedelta(hours=1))  # noqa: TID251
    data = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    access = asyncio.run(KubeConfig(kubeconfig(tmp_path, data)).load())
    assert access.authorization is None
    assert access.tls is not None


async def test_kubeconfig_asks_its_plugin_each_time_it_is_loaded(tmp_path: Path) -> None:
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
    assert [(await credentials.load()).authorization for _ in range(2)] == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        ({"command": "/no/such-plugin"}, "the exec plugin /no/such-plugin was not found$"),
        ({"command": "no-such", "installHint": "get it\nhere"}, "the exec plugin no-such was not found; get it here$"),
        ({}, "the exec plugin must have a command"),
        ({"command": sys.executable, "args": ["-c", "exit('log in first')"]}, "exec: process returned 1$"),
        ({"command": sys.executable, "args": ["-c", "print('no JSON')"]}, "exec: failed to decode process output"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"token": "old"}], ids=["alone", "beside a token"])
def test_plugin_that_fails_ends_the_matter(
    tmp_path: Path, plugin: dict[str, Any], why: str, more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """L2: without credentials the API server would be asked as a stranger, and say no for another reason."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **plugin}, **more}
    with pytest.raises(NoCredentials, match=rf"config: {why}") as raised:
        asyncio.run(KubeConfig(kubeconfig(tmp_path, user)).load())
    assert "Errno" not in str(raised.value)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "config: no such file", id="no file"),
        pytest.param("a: [", "config: not YAML: line 1, column 5: ", id="not YAML"),
        pytest.param("[1, 2]", "config: not a kubeconfig: must be an object", id="a list"),
        pytest.param("contexts: 5", "config: not a kubeconfig: contexts must be a list", id="no list"),
        pytest.param("users: [5]", "config: not a kubeconfig: users\\[0\\] must have a name and a user", id="no user"),
        pytest.param("current-context: x", 'config: there is no context "x"$', id="no context"),
        pytest.param("", "config: no current-context is set; choose one with --context$", id="empty"),
        pytest.param(
            "{current-context: a, contexts: [{name: a, context: {cluster: c}}]}",
            'config: context "a" names the cluster "c", which does not exist',
            id="no cluster",
        ),
        pytest.param(
            "{current-context: a, contexts: [{name: a, context: {cluster: c}}], clusters: [{name: c}]}",
            'config: the cluster of context "a" has no server',
            id="no server",
        ),
    ],
)
def test_b5_a_broken_kubeconfig_is_told_in_one_line_without_names_of_classes(
    tmp_path: Path, content: str | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """L3: in the error, and not in a line of the log."""
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(NoCredentials, match=why) as error:
        asyncio.run(KubeConfig(str(path)).load())
    assert "\n" not in str(error.value)
    assert "Exception" not in str(error.value)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("user", "cluster", "why"),
    [
        ({}, {"certificate-authority-data": "abc"}, 'cluster "one": certificate-authority-data is not base64$'),
        ({}, {"certificate-authority-data": "YWJj"}, "config: its certificates or key are not PEM, or key and"),
        ({"client-certificate-data": "YWJj", "client-key-data": "YWJj"}, {}, "its certificates or key are not PEM"),
        ({"client-certificate": "gone"}, {}, 'user "me": client-certificate: .*/gone: no such file$'),
        ({"tokenFile": "gone"}, {}, 'user "me": tokenFile: .*/gone: no such file$'),
    ],
)
def test_b5_certificates_and_files_of_a_kubeconfig_that_cannot_be_used_are_named(
    user: dict[str, str], cluster: dict[str, str], why: str, tmp_path: Path
) -> None:
    with pytest.raises(NoCredentials, match=why) as error:
        asyncio.run(KubeConfig(kubeconfig(tmp_path, user, **cluster)).load())
    assert "_ssl" not in str(error.value)


def small(path: Path, name: str, *, current: bool = True, **user: str) -> str:
    """A kubeconfig of one cluster, whose host is the name."""
    return written(path, {name: {"server": f"http://{name}.test"}}, {name: name}, user, name if current else "")


def server_of(
    environment: dict[str, str],
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    folder: Path,
    pod_first: bool = False,
) -> str:
    """The host that is asked with these variables, `--kubeconfig` and `--context`."""
    found = find_credentials(kubeconfig, context, environment=environment, folder=folder, pod_first=pod_first)
    return asyncio.run(found.load()).server.partition("://")[2].partition(":")[0]


def test_m9_a_flag_comes_before_the_variable_and_that_before_the_home_and_all_before_the_pod(
    pod: Path, tmp_path: Path
) -> None:
    flag, variable = small(tmp_path / "flag", "flag"), small(tmp_path / "variable", "variable")
    environment = {**ENVIRONMENT, "HOME": str(tmp_path / "home"), "KUBECONFIG": variable}
    assert server_of(environment, folder=pod) == "variable.test"
    assert server_of(environment, flag, folder=pod) == "flag.test"
    assert server_of({**environment, "KUBECONFIG": ""}, folder=pod) == "10.0.0.1"
    small(tmp_path / "home" / ".kube" / "config", "home")
    assert server_of({**environment, "KUBECONFIG": ""}, folder=pod) == "home.test"
    assert server_of(environment, folder=pod) == "variable.test"


def test_m9_workloads_take_the_service_account_of_their_pod_unless_a_flag_says_otherwise(
    pod: Path, tmp_path: Path
) -> None:
    flag, variable = small(tmp_path / "flag", "flag"), small(tmp_path / "variable", "variable")
    environment = {**ENVIRONMENT, "KUBECONFIG": variable}
    assert server_of(environment, folder=pod, pod_first=True) == "10.0.0.1"
    assert server_of(environment, flag, folder=pod, pod_first=True) == "flag.test"
    assert server_of(environment, None, "variable", folder=pod, pod_first=True) == "variable.test"
    assert server_of(environment, folder=tmp_path / "no pod", pod_first=True) == "variable.test"


def test_m9_of_several_files_the_first_to_say_something_holds_as_in_kubectl(tmp_path: Path) -> None:
    paths = [
        str(tmp_path / "missing"),
        small(tmp_path / "one", "one", current=False, token="first"),
        small(tmp_path / "two", "two", token="second"),
        small(tmp_path / "three", "three"),
    ]
    environment = {"KUBECONFIG": ":".join(paths)}
    assert server_of(environment, folder=tmp_path) == "two.test"
    assert server_of(environment, None, "three", folder=tmp_path) == "three.test"
    access = asyncio.run(find_credentials(None, "three", environment=environment, folder=tmp_path).load())
    assert access.authorization == "Bearer first"


def test_m9_files_that_a_kubeconfig_names_are_looked_for_beside_it(tmp_path: Path) -> None:
    other = small(tmp_path / "other" / "config", "other", current=False, tokenFile="token")
    (tmp_path / "other" / "token").write_text("beside\n")
    environment = {"KUBECONFIG": f"{other}:{small(tmp_path / 'one', 'one')}"}
    assert (
        asyncio.run(find_credentials(environment=environment, folder=tmp_path).load()).authorization == "Bearer beside"
    )


def test_a_pod_without_its_token_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NoCredentials, match=r"token: .*No such file"):
        asyncio.run(find_credentials(environment=ENVIRONMENT, folder=tmp_path).load())


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"KUBECONFIG": "/no/a:/no/b"}, "no cluster: \\$KUBECONFIG names /no/a and /no/b \\(not found\\), and"),
        (
            {"HOME": "/no/home"},
            "no cluster: there is no /no/home/.kube/config, and this is not a pod; name a file with",
        ),
        ({}, "no cluster: there is no ~/.kube/config, and this is not a pod"),
    ],
)
def test_m9_without_any_the_error_names_what_was_looked_for(
    tmp_path: Path, environment: dict[str, str], why: str
) -> None:
    with pytest.raises(NoCredentials, match=why):
        asyncio.run(find_credentials(environment=environment, folder=tmp_path).load())


def test_pods_do_not_load_the_generated_client() -> None:
    """It would be 17 MiB and 0.3 s for two environment variables and two files."""
    rooms = ("cache.names", "events")
    imports = "import " + ", ".join(f"webhook.cluster.{each}" for each in rooms)
    code = f"{imports}, sys; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ACTING: dict[str, Any] = {
    "as": "jane",
    "as-uid": "7",
    "as-groups": ["ml", "ops"],
    "as-user-extra": {"example.com/Scopes": ["a", "b"], "b": ["ü c"]},
}
HEADERS = (
    ("Impersonate-User", "jane"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-Group", "ml"),
    ("Impersonate-Group", "ops"),
    ("Impersonate-Extra-b", "ü c"),
    ("Impersonate-Extra-example.com%2Fscopes", "a"),
    ("Impersonate-Extra-example.com%2Fscopes", "b"),
)


def test_kubeconfig_whose_user_acts_as_another(tmp_path: Path) -> None:
    """Without, requests would have all rights of the user who may impersonate."""
    access = asyncio.run(KubeConfig(kubeconfig(tmp_path, {"token": "abc", **ACTING})).load())
    assert access.authorization == "Bearer abc"
    assert sorted(access.impersonation) == sorted(HEADERS)


@pytest.mark.parametrize(
    ("given", "user", "groups"),
    [
        (Impersonation("john"), "john", ["ml", "ops"]),
        (Impersonation("john", groups=("x",)), "john", ["x"]),
        (Impersonation(groups=("x",)), "jane", ["x"]),
        (Impersonation(), "jane", ["ml", "ops"]),
    ],
)
def test_flags_go_before_the_kubeconfig_field_by_field(
    tmp_path: Path, given: Impersonation, user: str, groups: list[str]
) -> None:
    """As kubectl merges its flags into the kubeconfig."""
    path = kubeconfig(tmp_path, {"token": "abc", **ACTING})
    found = asyncio.run(find_credentials(path, environment={}, impersonation=given).load()).impersonation
    assert found[0] == ("Impersonate-User", user)
    assert [value for name, value in found if name == "Impersonate-Group"] == groups


def test_pod_acts_as_another_user(pod: Path) -> None:
    found = find_credentials(environment=ENVIRONMENT, folder=pod, impersonation=Impersonation("john"))
    assert asyncio.run(found.load()).impersonation == (("Impersonate-User", "john"),)


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"as-groups": ["ml"]}, "no user to act as"),
        ({"as": 5}, "as must be a string"),
        ({"as": "a", "as-groups": "ml"}, "as-groups must be a list of strings"),
        ({"as": "a", "as-groups": [1]}, "as-groups must be a list of strings"),
        ({"as": "\ud800"}, "not UTF-8"),
        ({"as": "a", "as-groups": ["\udcff"]}, "not UTF-8"),
        ({"as": "a", "as-user-extra": []}, "as-user-extra must be an object"),
        ({"as": "a", "as-user-extra": ""}, "as-user-extra must be an object"),
        ({"as": "a", "as-user-extra": ["x"]}, "as-user-extra must be an object"),
        ({"as": "a", "as-user-extra": {"k": "v"}}, "as-user-extra: k must be a list of strings"),
        ({"as": "a\r\nImpersonate-Group: system:masters"}, "control characters"),
    ],
)
def test_kubeconfig_that_acts_as_another_in_no_way_that_can_be_sent(
    tmp_path: Path, user: dict[str, Any], why: str
) -> None:
    credentials = KubeConfig(kubeconfig(tmp_path, {"token": "abc", **user}))
    with pytest.raises(NoCredentials, match=why):
        asyncio.run(credentials.load())


async def test_requests_name_the_user_to_act_as() -> None:
    """A header may occur several times."""
    async with Peer() as peer:
        groups = [("Impersonate-Group", "ml"), ("Impersonate-Group", "système")]
        access = Access(peer.url, impersonation=(("Impersonate-User", "jane"), *groups))
        async with Cluster(Fixed(access)) as cluster:
            peer.answers.append(Answer({}))
            await cluster.get("/x")
            [request] = peer.requests
            assert request.headers["impersonate-user"] == "jane"
            assert request.headers["impersonate-group"] == "ml, système"
