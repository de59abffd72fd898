"""Address of the API server and credentials for it: from a pod's service account, or from a kubeconfig.

Impersonation is acting as another user, as `kubectl --as` does.
Source: k8s.io/client-go/transport/round_trippers.go (headers), k8s.io/client-go/tools/clientcmd/api/v1 (fields).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import shutil
import ssl
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from webhook.certificates.parsing import Unusable, parsing, trusting_context
from webhook.cluster.client.errors import NoCredentials

_HEADER_CHARACTERS: Final = "!#$&'*+-.^_`|~"
"""What may stand in the name of a header besides letters and digits; `%` escapes all others."""
_LAST_CONTROL: Final = "\x1f"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_VARIABLE: Final = "KUBECONFIG"
_DEFAULT: Final = Path(".kube", "config")


class Impersonation(NamedTuple):
    """The user to act as; none if all of it is empty."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def over(self, other: Impersonation) -> Impersonation:
        """Field by field, this one's value where it has one; so kubectl merges its flags into a kubeconfig."""
        return Impersonation(
            self.user or other.user, self.uid or other.uid, self.groups or other.groups, self.extra or other.extra
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of each request. Raises NoCredentials if no user is named, or a value fits into no header."""
        if self == Impersonation():
            return ()
        if not self.user:
            raise NoCredentials("groups, a UID or extra values to act with, but no user to act as: name one with --as")
        named = [("Impersonate-User", self.user)]
        named += [("Impersonate-Uid", self.uid)] if self.uid else []
        named += [("Impersonate-Group", group) for group in self.groups]
        for key, values in self.extra:
            escaped = quote(key.lower(), safe=_HEADER_CHARACTERS)
            named += [(f"Impersonate-Extra-{escaped}", value) for value in values]
        for _, value in named:
            if any(character <= _LAST_CONTROL or character == "\x7f" for character in value):
                raise NoCredentials(f"the user to act as has control characters: {value!r}")
            if not value.isascii() and _SURROGATE.search(value):  # from bytes of a command line, or JSON
                raise NoCredentials(f"the user to act as is not UTF-8: {value!r}")
        return tuple(named)


def impersonation_in(user: Mapping[str, Any], where: str) -> Impersonation:
    """What the user of a kubeconfig says; `where` names it in errors. Raises NoCredentials."""
    extra = user.get("as-user-extra")
    extra = {} if extra is None else extra
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) for key in extra):
        raise NoCredentials(f"{where}: as-user-extra must be an object")
    found = [(key, _texts(values, f"{where}: as-user-extra: {key}")) for key, values in sorted(extra.items())]
    groups = _texts(user.get("as-groups"), f"{where}: as-groups")
    return Impersonation(_text(user, "as", where), _text(user, "as-uid", where), groups, tuple(found))


def _text(user: Mapping[str, Any], name: str, where: str) -> str:
    value = user.get(name)
    if value is not None and not isinstance(value, str):
        raise NoCredentials(f"{where}: {name} must be a string")
    return value or ""


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise NoCredentials(f"{where} must be a list of strings")
    return tuple(value)


_NO_ONE: Final = Impersonation()


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of an API server, as of one moment."""

    server: str
    """`https://host:port`, perhaps with a path, without a slash at its end."""
    tls: ssl.SSLContext | None = None
    """Has our client certificate, if we authenticate with one. None without TLS (`kubectl proxy`)."""
    authorization: str | None = field(default=None, repr=False)
    """The header's value."""
    server_name: str | None = None
    """The name in the server's certificate, if it is another than the host's."""
    proxy: str | None = None
    """An HTTP proxy's URL; empty for no proxy. None: HTTPS_PROXY, HTTP_PROXY and NO_PROXY decide."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """The headers that name the user to act as; a header may occur several times."""


class Credentials(Protocol):
    """A source of access, loaded again when the server answers 401."""

    @property
    def rotates(self) -> bool:
        """Whether loading again every minute is cheap and may return something new."""

    async def load(self) -> Access:
        """The access as of now. Raises NoCredentials."""


class InCluster:
    """What a kubelet puts into each container: two variables, a CA, and a token that is rotated."""

    rotates = True

    def __init__(
        self, environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT, impersonation: Impersonation = _NO_ONE
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._impersonation = impersonation
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
                with parsing(f"{self._folder / 'ca.crt'}: cannot be read"):
                    self._tls, self._ca = trusting_context(ca), ca
            except Unusable as error:
                raise NoCredentials(str(error)) from None
        address = f"[{host}]" if ":" in host else host
        # The cluster's own address needs no proxy, and where every pod is given one, the token would go to it. If a pod
        # has to use one all the same, a kubeconfig with proxy-url says so.
        server, impersonation = f"https://{address}:{port}", self._impersonation.headers()
        return Access(server, self._tls, f"Bearer {token}", proxy="", impersonation=impersonation)

    def _text(self, name: str) -> str:
        path = self._folder / name
        try:
            text = path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise NoCredentials(f"{path}: {error}") from None
        if not text:
            raise NoCredentials(f"{path}: empty")
        return text


class KubeConfig:
    """Kubeconfigs as kubectl reads them, with client certificates, tokens, exec plugins, OIDC and impersonation."""

    rotates = False

    def __init__(
        self, paths: str | Sequence[str], context: str | None = None, impersonation: Impersonation = _NO_ONE
    ) -> None:
        """One path, which must exist, or several; those that exist are used.

        Without a context the current one is taken. What `impersonation` names goes before what the file names.
        """
        self._paths = (paths,) if isinstance(paths, str) else tuple(paths)
        self._skips_missing = not isinstance(paths, str)
        self._context = context
        self._impersonation = impersonation

    async def load(self) -> Access:
        """Reads the files, and asks the plugin that the context's user names for a token."""
        config, where = self._chosen()
        user = config["users"][0]["user"]
        plugin = user.get("exec")
        impersonation = self._impersonation.over(impersonation_in(user, where)).headers()
        if plugin is not None:
            _look_for_plugin(plugin, where)
            rest = {name: value for name, value in user.items() if name != "exec"}
            config["users"][0]["user"] = {**rest, **await _given_by(plugin, where)}
        access = await _loaded(config, where)
        return replace(access, impersonation=impersonation)

    def namespace(self) -> str:
        """The namespace of the context, which kubectl takes where no flag names one; empty if it has none."""
        config, _ = self._chosen()
        found = config["contexts"][0]["context"].get("namespace")
        return found if isinstance(found, str) else ""

    def _chosen(self) -> tuple[dict[str, Any], str]:
        """The kubeconfig with one context, and the names of its files. Raises NoCredentials."""
        paths = [path for path in self._paths if _there(path)] if self._skips_missing else self._paths
        where = os.pathsep.join(paths or self._paths)
        if not paths:
            raise NoCredentials(f"{where}: no such file")
        # Here and not above: PyYAML is not needed inside a cluster.
        from webhook.cluster.client.kubeconfig import context_of, merged  # noqa: PLC0415

        return context_of(merged(paths), self._context, where), where


class Nowhere:
    """Neither a kubeconfig nor a pod."""

    rotates = False

    def __init__(self, why: str) -> None:
        self._why = why

    async def load(self) -> Access:
        """Raises NoCredentials."""
        raise NoCredentials(self._why)


def kubeconfig_paths(environment: Mapping[str, str]) -> list[str]:
    """Where kubectl looks without --kubeconfig: the paths of $KUBECONFIG, else `~/.kube/config`."""
    listed = [path for path in environment.get(_VARIABLE, "").split(os.pathsep) if path]
    if listed:
        return list(dict.fromkeys(listed))
    home = environment.get("HOME", "")
    return [str(Path(home) / _DEFAULT)] if home else []


def find_credentials(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str],
    pod_first: bool = False,
    folder: Path = SERVICE_ACCOUNT,
    impersonation: Impersonation = _NO_ONE,
) -> Credentials:
    """Where client-go would look: a file that is named, $KUBECONFIG, `~/.kube/config`, the pod's service account.

    With `pod_first` the service account comes right after the file that is named, for what runs in pods: there, a
    variable that an image brings along must not lead to another cluster. A context that is named is one of a file.
    `impersonation` is the user to act as, field by field before what a kubeconfig names.
    """
    if kubeconfig is not None:
        return KubeConfig(kubeconfig, context, impersonation)
    in_pod = _has_address(environment) and (folder / "token").is_file()  # the checks of client-go
    if in_pod and pod_first and not context:
        return InCluster(environment, folder, impersonation)
    paths = kubeconfig_paths(environment)
    if any(_there(path) for path in paths):
        return KubeConfig(paths, context, impersonation)
    if _has_address(environment) and not context:  # if its token is missing, loading it says so
        return InCluster(environment, folder, impersonation)
    missing = " and ".join(paths) or "~/.kube/config"
    missing_file = f"${_VARIABLE} names {missing}" if environment.get(_VARIABLE) else f"there is no {missing}"
    none = " (not found)" if environment.get(_VARIABLE) else ""
    pod = "a pod has no contexts" if _has_address(environment) else "this is not a pod"
    return Nowhere(f"no cluster: {missing_file}{none}, and {pod}; name a file with --kubeconfig")


def _there(path: str) -> bool:
    """Return whether the file exists; one that cannot be checked counts, and is reported when it is read."""
    try:
        os.stat(path)  # noqa: PTH116 -- Path.exists takes more for an absence
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _has_address(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT"))


def _look_for_plugin(plugin: Any, where: str) -> None:
    command = plugin.get("command") if isinstance(plugin, dict) else None
    if not isinstance(command, str) or not command:
        raise NoCredentials(f"{where}: the exec plugin must have a command")
    if shutil.which(command) is None:
        hint = plugin.get("installHint")
        more = f"; {' '.join(hint.split())}" if isinstance(hint, str) and hint else ""
        raise NoCredentials(f"{where}: the exec plugin {command} was not found{more}")


async def _given_by(plugin: Mapping[str, Any], where: str) -> dict[str, str]:
    """Runs an exec plugin; returns fields of the user. As with kubectl it shares our stderr: it may ask for a login."""
    interactive = plugin.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    info = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": interactive}}
    try:
        variables = {each["name"]: each["value"] for each in plugin.get("env") or ()}
        process = await asyncio.create_subprocess_exec(
            plugin["command"],
            *(plugin.get("args") or ()),
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise NoCredentials(f"{where}: exec: process returned {process.returncode}")
        return _user_in(output, info["apiVersion"])
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        kinds = {json.JSONDecodeError: "failed to decode process output: ", KeyError: "missing key "}
        raise NoCredentials(f"{where}: exec: {kinds.get(type(error), '')}{error}") from None


def _user_in(output: bytes, version: Any) -> dict[str, str]:
    answer = json.loads(output)
    if not isinstance(answer, dict) or not isinstance(answer.get("status", {}), dict):
        raise TypeError("answer or its status is no object")
    if answer["apiVersion"] != version:
        raise ValueError(f"plugin api version {answer['apiVersion']} does not match {version}")
    fields = ("token", "clientCertificateData", "clientKeyData")
    token, *pair = [answer["status"].get(name) or "" for name in fields]
    if any(pair) != all(pair) or not (token or any(pair)):
        raise ValueError("neither a token nor a certificate with its key")
    if not any(pair):
        return {"token": token}
    certificate, key = [base64.b64encode(each.encode()).decode() for each in pair]
    return {"token": token, "client-certificate-data": certificate, "client-key-data": key}


async def _loaded(config: Mapping[str, Any], where: str) -> Access:
    # Here and not above: it brings 17 MiB and 0.3 s of generated clients, which nothing needs inside a cluster.
    from kubernetes.aio import client  # noqa: PLC0415
    from kubernetes.aio.client import rest  # noqa: PLC0415
    from kubernetes.aio.config import kube_config as loading  # noqa: PLC0415

    configuration = client.Configuration()
    configuration.disable_strict_ssl_verification = True  # as in trusting_context
    logger = logging.getLogger(loading.__name__)
    logger.addFilter(_is_no_error)
    try:
        await loading.load_kube_config_from_dict(  # type: ignore[no-untyped-call]  # it has no types
            dict(config), client_configuration=configuration
        )
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        tls = rest.RESTClientObject(configuration).ssl_context if configuration.host.startswith("https:") else None
    except ssl.SSLError:
        text = "its certificates or key are not PEM, or key and certificate do not belong together"
        raise NoCredentials(f"{where}: {text}") from None
    except OSError as error:
        raise NoCredentials(f"{where}: {error.filename or 'a file it names'}: {error.strerror or error}") from None
    # The loader hardly checks the shape of a kubeconfig, so a wrong one may raise anything.
    except Exception as error:  # noqa: BLE001
        text = " ".join(str(error).split()) or type(error).__name__
        raise NoCredentials(f"{where}: {text}") from None
    finally:
        logger.removeFilter(_is_no_error)
    return Access(
        configuration.host.rstrip("/"),
        tls,
        authorization.strip() if authorization else None,  # a tokenFile may end in a newline
        configuration.tls_server_name or None,
        configuration.proxy or None,
    )


def _is_no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR
