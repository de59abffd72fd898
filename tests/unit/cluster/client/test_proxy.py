"""M3: which servers are asked by a proxy, as Go's httpproxy decides it; the table was run through that, too."""

from __future__ import annotations

import pytest
from yarl import URL

from webhook.cluster.client.connections import UnknownProxy, proxy_at, proxy_for

PROXY = "http://proxy.test:3128"

DIRECT = [
    ("https://10.96.0.1", "10.96.0.0/12"),
    ("https://10.96.0.1", "10.99.3.4/12"),
    ("https://10.96.0.1", ".svc, 10.96.0.0/12 ,x"),
    ("https://10.0.0.5:6443", "10.0.0.5:6443"),
    ("https://10.0.0.5:6443", "10.0.0.5"),
    ("https://10.0.0.5", "10.0.0.5:443"),
    ("http://10.0.0.5", "10.0.0.5:80"),
    ("https://[fd00::1]:6443", "fd00::/8"),
    ("https://[fd00::1]:6443", "fd00::1"),
    ("https://[fd00::1]:6443", "[fd00::1]:6443"),
    ("https://[::ffff:10.96.0.1]", "10.96.0.0/12"),
    ("https://kubernetes.default.svc", ".svc"),
    ("https://kubernetes.default.svc", "*.svc"),
    ("https://kubernetes.default.svc", "svc"),
    ("https://kubernetes.default.svc", "KUBERNETES.default.SVC"),
    ("https://API.example.com:6443", "example.com"),
    ("https://api.example.com:6443", "api.example.com:6443"),
    ("https://api.example.com:6443", ".example.com:6443"),
    ("https://anything.test", "*"),
    ("https://anything.test", "a,*,b"),
    ("https://localhost:6443", ""),
    ("https://127.0.0.1:6443", ""),
    ("https://127.8.8.8:6443", ""),
    ("https://[::1]:6443", ""),
]
BY_PROXY = [
    ("https://10.96.0.1", ""),
    ("https://10.112.0.1", "10.96.0.0/12"),
    ("https://10.96.0.1", "10.96.0.0/12:443"),
    ("https://10.0.0.5:6443", "10.0.0.5:443"),
    ("https://110.0.0.5", "10.0.0.5"),
    ("https://10.0.0.5", ".0.0.5"),
    ("https://[fd00::1]:6443", "fe80::/10"),
    ("https://[fd00::1]:6443", "[fd00::1]:443"),
    ("https://svc", ".svc"),
    ("https://svc", "*.svc"),
    ("https://notexample.com", "example.com"),
    ("https://example.com.evil.test", "example.com"),
    ("https://api.example.com:6443", "example.com:443"),
    ("https://anything.test", "*thing.test"),
    ("https://anything.test", ":443,.,,/"),
    ("https://10.96.0.1", "10.96.0.0/99"),
    ("https://api.example.com", "10.0.0.0/8"),
]


@pytest.mark.parametrize(("server", "no_proxy"), DIRECT)
def test_server_that_no_proxy_names_is_asked_directly(server: str, no_proxy: str) -> None:
    environment = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert proxy_for(URL(server), environment) is None


@pytest.mark.parametrize(("server", "no_proxy"), BY_PROXY)
def test_server_that_no_proxy_does_not_name_is_asked_by_the_proxy(server: str, no_proxy: str) -> None:
    assert proxy_for(URL(server), {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == URL(PROXY)


@pytest.mark.parametrize(
    ("server", "environment", "expected"),
    [
        ("https://api.test", {"https_proxy": PROXY}, PROXY),
        ("https://api.test", {"HTTPS_PROXY": PROXY, "https_proxy": "http://other.test"}, PROXY),
        ("https://api.test", {"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY),
        ("https://api.test", {"HTTP_PROXY": PROXY}, None),
        ("https://api.test", {"ALL_PROXY": PROXY}, None),
        ("http://api.test", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://api.test", {"HTTPS_PROXY": PROXY}, None),
        ("https://api.test", {"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ("https://api.test", {"HTTPS_PROXY": "https://proxy.test"}, "https://proxy.test"),
        ("https://api.test", {"HTTPS_PROXY": PROXY, "no_proxy": ".test"}, None),
        ("https://api.test", {"HTTPS_PROXY": PROXY, "NO_PROXY": "x", "no_proxy": ".test"}, PROXY),
    ],
)
def test_proxy_is_named_by_the_variable_of_the_scheme(
    server: str, environment: dict[str, str], expected: str | None
) -> None:
    assert proxy_for(URL(server), environment) == (None if expected is None else URL(expected))


@pytest.mark.parametrize("text", ["socks5://me:secret@proxy.test:1080", "ftp://proxy.test", "http://", "http://[x"])
def test_proxy_that_cannot_be_used_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(UnknownProxy, match=r"^HTTPS_PROXY: ") as raised:
        proxy_at(text, "HTTPS_PROXY")
    assert "secret" not in str(raised.value)
