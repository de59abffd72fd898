"""Acting as another user, as a kubeconfig or flags say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.client.test_credentials import authority, kubeconfig
from tests.unit.cluster.peer import Answer, Fixed, Peer
from webhook.cluster.client.credentials import Access, Impersonation, KubeConfig, find_credentials
from webhook.cluster.client.errors import NoCredentials
from webhook.cluster.client.rest import Cluster

if TYPE_CHECKING:
    from pathlib import Path

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


def test_pod_acts_as_another_user(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_bytes(authority().certificate)
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = find_credentials(environment=environment, folder=tmp_path, impersonation=Impersonation("john"))
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
