"""Where the API server is and who we are to it: as every pod is told, or as a kubeconfig says."""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from webhook.cluster.errors import NoCredentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOADER: Final = "kubernetes.aio.config.kube_config"
_NOT_FOUND: Final = "Config not found"
_ERROR_NUMBER: Final = re.compile(r"^\[Errno [0-9]+\] ")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server and as whom, as of one moment."""

    server: str
    """`https://host:port`, perhaps with a path, without a slash at its end."""
    tls: ssl.SSLContext | None = None
    """With our client certificate, if that is who we are. None without TLS (`kubectl proxy`)."""
    authorization: str | None = field(default=None, repr=False)
    """The header's value."""
    server_name: str | None = None
    """The name in the server's certificate, if it is another than the host's."""
    proxy: str | None = None
    """An HTTP proxy's URL, empty for none at all; None leaves it to HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""


class Credentials(Protocol):
    """Something that says how to get access, and says so again when the server does not know us any more."""

    @property
    def rotates(self) -> bool:
        """Whether loading again every minute is cheap and may bring something new."""

    async def load(self) -> Access:
        """What holds now. Raises NoCredentials."""


class InCluster:
    """What a kubelet puts into each container: two variables, a CA and a token that is replaced as time goes by."""

    rotates = True

    def __init__(self, environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> None:
        self._environment = environment
        self._folder = folder
        self._ca = ""
        self._tls: ssl.SSLContext | None = None

    async def load(self) -> Access:
        """Reads both files; the TLS context stays the same while the CA does, and connections with it."""
        host = self._environment.get("KUBERNETES_SERVICE_HOST", "")
        port = self._environment.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise NoCredentials("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        token, ca = self._text("token"), self._text("ca.crt")
        if self._tls is None or ca != self._ca:
            try:
                self._tls, self._ca = ssl.create_default_context(cadata=ca), ca
            except ssl.SSLError as error:
                raise NoCredentials(f"{self._folder / 'ca.crt'}: not PEM: {error}") from None
        address = f"[{host}]" if ":" in host else host
        # The cluster's own address needs no proxy, and where every pod is given one, the token would go to it. If a pod
        # has to use one all the same, a kubeconfig with proxy-url says so.
        return Access(f"https://{address}:{port}", self._tls, f"Bearer {token}", proxy="")

    def _text(self, name: str) -> str:
        path = self._folder / name
        try:
            text = path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise NoCredentials(f"{path}: {error}") from None
        if not text:
            raise NoCredentials(f"{path}: empty")
        return text


@contextlib.contextmanager
def _overheard() -> Iterator[list[logging.LogRecord]]:
    """What the loader only logs meanwhile: a file that is not there, a plugin that fails. It is not logged."""
    remarks: list[logging.LogRecord] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            remarks.append(record)

    logger, listener = logging.getLogger(_LOADER), Listener()
    logger.addHandler(listener)
    logger.propagate = False
    try:
        yield remarks
    finally:
        logger.removeHandler(listener)
        logger.propagate = True


class KubeConfig:
    """A kubeconfig as kubectl reads it, with client certificates, tokens, exec plugins and OIDC."""

    rotates = False

    def __init__(self, path: str, context: str | None = None) -> None:
        """`path` may be several, as in KUBECONFIG; without a context the file's current one is taken."""
        self._path = path
        self._context = context

    async def load(self) -> Access:
        """Reads the file, and asks the plugin it names for a token."""
        # Here and not above: it brings 17 MiB and 0.3 s of generated clients, which nobody needs inside a cluster.
        from kubernetes.aio import client, config  # noqa: PLC0415
        from kubernetes.aio.client import rest  # noqa: PLC0415

        configuration = client.Configuration()
        try:
            with _overheard() as remarks:
                await config.load_kube_config(  # type: ignore[no-untyped-call]  # it has no types
                    self._path, self._context, configuration, persist_config=False
                )
            authorization = await configuration.get_api_key_with_prefix("BearerToken")
            tls = rest.RESTClientObject(configuration).ssl_context if configuration.host.startswith("https:") else None
        # The loader takes the file's shape for granted: what a wrong one raises is without end.
        except Exception as error:  # noqa: BLE001
            if any(remark.msg.startswith(_NOT_FOUND) for remark in remarks):
                raise NoCredentials(f"{self._path}: no such file") from None
            raise NoCredentials(f"{self._path}: {type(error).__name__}: {error}") from None
        for remark in remarks:
            if remark.levelno >= logging.ERROR:  # else we would go on as a stranger; kubectl stops here as well
                why = _ERROR_NUMBER.sub("", remark.getMessage())
                raise NoCredentials(f"{self._path}: the exec plugin of the user gave no credentials: {why}")
        return Access(
            configuration.host.rstrip("/"),
            tls,
            authorization.strip() if authorization else None,  # a tokenFile may end in a newline
            configuration.tls_server_name or None,
            configuration.proxy,
        )
