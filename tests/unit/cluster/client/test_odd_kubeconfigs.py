"""Kubeconfigs and flags that are odd, but mean something."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from webhook.cluster.client.credentials import InCluster, KubeConfig, find_credentials
from webhook.cluster.client.errors import NoCredentials, Unavailable
from webhook.cluster.client.rest import Cluster

if TYPE_CHECKING:
    from pathlib import Path

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def without_user(folder: Path, **cluster: Any) -> KubeConfig:
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(content))
    return KubeConfig(str(path))


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
async def test_context_needs_no_user(tmp_path: Path, server: str) -> None:
    access = await without_user(tmp_path, server=server).load()
    assert (access.server, access.authorization, access.tls is not None) == (server, None, server.startswith("https"))


async def test_empty_proxy_url_leaves_it_to_the_environment(tmp_path: Path) -> None:
    assert (await without_user(tmp_path, server="http://a.test", **{"proxy-url": ""}).load()).proxy is None


async def test_server_without_a_scheme_is_named_as_no_url(tmp_path: Path) -> None:
    async with Cluster(without_user(tmp_path, server="127.0.0.1:1")) as cluster:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/version: not the URL of a server$"):
            await cluster.get("/version")


def test_empty_context_is_none_and_a_named_one_is_not_looked_for_in_a_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    for first in (True, False):
        found = find_credentials(None, "", environment=POD, pod_first=first, folder=tmp_path)
        assert isinstance(found, InCluster)
        named = find_credentials(None, "prod", environment=POD, pod_first=first, folder=tmp_path)
        with pytest.raises(NoCredentials, match="and a pod has no contexts; name a file with --kubeconfig"):
            asyncio.run(named.load())
