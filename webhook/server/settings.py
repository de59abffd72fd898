"""Settings of this room. Nothing here imports aiohttp, so that reading flags stays quick."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen. An empty host is every interface, port 0 any free port."""

    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """How many connections there may be, how long each may take for what, and how it ends."""

    connections: int = 2000
    """With a finished handshake, at a time. Each takes 50 to 100 KiB; an API server opens one for each review that it
    waits for, some hundreds at most. When there are more, the one is closed that has waited for its client longest."""
    handshakes: int = 500
    """Under way at a time, beside these; then new ones are closed at once. Each takes up to 420 KiB."""
    handshake_seconds: float = 5.0
    """For the TLS handshake: the longest timeoutSeconds of our entries, which API servers wait."""
    header_seconds: float = 10.0
    """From the first byte of a request to the end of its header."""
    idle_seconds: float = 120.0
    """Between requests. More than the 90 s after which API servers close idle connections themselves: who closes
    first cannot cut off a request that is under way."""
    write_seconds: float = 10.0
    """For a client to take an answer that does not fit into the socket's buffer."""
    lingering_seconds: float = 0.5
    """How long the rest of a refused body is read and thrown away, so that the client sees the answer."""
    close_seconds: float = 2.0
    """For a client to agree to the end of TLS."""
    drain_idle_seconds: float = 1.0
    """While stopping: how long a kept-alive connection may still bring a request before it is closed. A client
    that sends while we close would not know whether its request was seen."""
    drain_seconds: float = 25.0
    """While stopping: how long requests in flight may take. 80 % of the 30 s that an API server waits at most,
    and a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """What a review may cost."""

    # Every object that can be stored must be judged, as claims fail open. etcd takes 1.5 MiB of one; an API server
    # writes six bytes for each "<" of it into a review, which makes 9 MiB, and there is 1 MiB for the envelope.
    body_limit_bytes: int = 10 * 1024 * 1024
    buffered_limit_bytes: int = 64 * 1024 * 1024
    """For all bodies that are being received at a time, and again for all that wait to be judged: nine of the largest,
    which no API server ever sends. Bodies of up to `large_claim_bytes` always find room."""
    large_bytes: int = 256 * 1024
    """Bodies above this are read and judged one at a time, beside the others."""
    large_claim_bytes: int = 16 * 1024
    """The same for claims and templates, which cost more per byte: above this they have hundreds of tolerations."""
    turn_seconds: float = 0.002
    """For a smaller claim or template on the event loop, which has its turn for at most twice as long; one that costs
    more is judged again as a large one."""
    documents_limit_bytes: int = 8 * 1024 * 1024
    """For all ConfigMaps that wait to be judged: ten of the size that etcd takes. There is one per cluster."""
    body_seconds: float = 10.0
    """For the body to arrive once the header is there; less if the caller's deadline comes first."""
    beginning_seconds: float = 1.0
    """For the first bytes of a body that is too large, which have the uid to answer to."""
    default_timeout_seconds: float = 10.0
    """The caller's time-out if the query has no `timeout`: the API's own default."""
    longest_timeout_seconds: float = 30.0
    """The API's maximum for timeoutSeconds."""
    deadline_share: float = 0.8
    """The share of the caller's time-out after which it gets the answer that time ran out."""
    look_up_seconds: float = 0.5
    """For asking the cluster for a namespace or class that no watch has shown yet; at most half of the time left."""
