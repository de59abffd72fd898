"""Servers to talk to: one for all tests that leave it alone, and new ones with settings of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.https.serving import Loop, Server
from webhook.certificates.authority import Authority
from webhook.certificates.settings import TLSVersion
from webhook.server.settings import ListenerSettings, ReviewSettings
from webhook.server.state import ReviewState


class StartServer(Protocol):
    def __call__(
        self,
        listener: ListenerSettings = ...,
        reviews: ReviewSettings = ...,
        client_ca: Authority | None = ...,
        state: ReviewState | None = ...,
        oldest_version: TLSVersion = ...,
        cipher_suites: tuple[str, ...] = ...,
    ) -> Server: ...


QUICK_END = ListenerSettings(drain_idle_seconds=0.0, lingering_seconds=0.2)


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    with Loop.running() as running:
        yield running


@pytest.fixture(scope="session")
def server(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default settings, shared by tests that do not disturb it."""
    with Server(tmp_path_factory.mktemp("server"), loop, QUICK_END, ReviewSettings()).listening() as listening:
        yield listening


@pytest.fixture
def start_server(loop: Loop, tmp_path: Path) -> Iterator[StartServer]:
    """Starts a server of the test's own."""
    with ExitStack() as stack:

        def start(
            listener: ListenerSettings = QUICK_END,
            reviews: ReviewSettings = ReviewSettings(),  # noqa: B008 -- frozen
            client_ca: Authority | None = None,
            state: ReviewState | None = None,
            oldest_version: TLSVersion = TLSVersion.TLS12,
            cipher_suites: tuple[str, ...] = (),
        ) -> Server:
            server = Server(tmp_path, loop, listener, reviews)
            server.client_ca = client_ca
            server.state = state or server.state
            server.oldest_version = oldest_version
            server.cipher_suites = cipher_suites
            return stack.enter_context(server.listening())

        yield start
