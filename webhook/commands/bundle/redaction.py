"""Takes secrets, and names if asked, out of what goes into an archive. Pure.

What is known to be harmless is kept, and all else that may hold a secret is dropped: values of environment variables,
annotations, data of ConfigMaps, parameters of drivers. Then texts are searched for what looks like a credential.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from webhook.api.meta import OWN_GROUP
from webhook.api.names import POLICY_NAME
from webhook.api.rules import CONFIRM_IMPACT, DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

REDACTED: Final = "[redacted]"
_KEPT_ANNOTATIONS: Final = (
    OWN_GROUP,
    "deployment.kubernetes.io",
    "resource.kubernetes.io",
    "scheduling.k8s.io",
    "prometheus.io",
)
"""Groups of annotations whose values are kept."""
_DROPPED_ANNOTATIONS: Final = frozenset({CONFIRM_IMPACT, DATA, f"{OWN_GROUP}/requested-by"})
"""Of these groups: what confirms an impact, what is signed, and free data."""
_KEPT_VARIABLES: Final = "DEVICE_TAINT_WEBHOOK_"
_KEPT_DATA: Final = frozenset({"policy.yaml", "candidate.yaml"})
_SECRETS: Final = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
        (r"(?:LS0tLS1CRUdJTi|MII[A-Za-z])[A-Za-z0-9+/=]{16,}", 0),  # the same in base64, and DER
        (r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}", 0),  # JSON Web Tokens
        (r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", 0),
        (r"\bv1\.[0-9]+(?:\.[0-9]+){4}\.[A-Za-z0-9_=-]+", 0),  # codes that confirm an impact
        (r"\\?\"(?:mac|nonce)\\?\"\s*:\s*\\?\"[^\"]+\"", 0),  # signatures of authors
        (r"(?<=://)[^/\s@\"']+:[^/\s@\"']+(?=@)", 0),  # user and password in a URL
        (r"\b(?:gh[opsu]_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{10,}", 0),
    )
)
_ASSIGNED: Final = re.compile(
    r"""(?ix)
    (["']?[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credential|
       authorization|client-key-data|client-certificate-data)[a-z0-9_.-]*\\?["']?
    \s*[:=]\s*\\?["']?)
    (?!\[redacted\])([^\s"',;}{]{4,})
    """
)
"""`password=...`, `"token": "..."` and the like: the first group is kept."""
_NAMES_OF_THINGS: Final = frozenset({"secretname", "tokenfile", "tokenexpirationseconds"})
"""Fields that only look like it."""
_PATHS: Final = frozenset({"/validate", "/mutate"})


def digest_of(text: str) -> str:
    """What is left of a caBundle."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()} of {len(text)} characters"


def clean_text(text: str, known: Iterable[str] = ()) -> str:
    """A text without what looks like a credential, and without the `known` ones."""
    for secret in known:
        text = text.replace(secret, REDACTED)
    for pattern in _SECRETS:
        text = pattern.sub(REDACTED, text)
    return _ASSIGNED.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    name = re.sub(r"[^a-z]", "", match[1].lower())
    return match[0] if name in _NAMES_OF_THINGS else f"{match[1]}{REDACTED}"


def clean(value: Any, known: tuple[str, ...] = ()) -> Any:
    """JSON without secrets: an object as it is served, or a part of one."""
    if isinstance(value, str):
        return clean_text(value, known)
    if isinstance(value, list):
        return [clean(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _clean_field(name, each, value, known) for name, each in value.items() if name != "managedFields"}


def _clean_field(name: str, value: Any, parent: dict[str, Any], known: tuple[str, ...]) -> Any:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(value, parent, known)
    named = isinstance(value, str) and _ASSIGNED.match(f"{name}=xxxx") and name.lower() not in _NAMES_OF_THINGS
    return REDACTED if named else clean(value, known)


def _annotations(value: Any, _: dict[str, Any], known: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return clean(value, known)
    return {key: clean(each, known) if _is_kept(key) else REDACTED for key, each in value.items()}


def _variables(value: Any, _: dict[str, Any], known: tuple[str, ...]) -> Any:
    return [_variable(each, known) for each in value] if isinstance(value, list) else clean(value, known)


def _data(value: Any, parent: dict[str, Any], known: tuple[str, ...]) -> Any:
    """Of a ConfigMap: only of ours, and only the policies."""
    if not isinstance(value, dict):
        return clean(value, known)
    about = parent.get("metadata")
    ours = isinstance(about, dict) and about.get("name") == POLICY_NAME
    return {key: clean(each, known) if ours and key in _KEPT_DATA else REDACTED for key, each in value.items()}


def _dropped(*_: Any) -> Any:
    return REDACTED


def _bundle(value: Any, *_: Any) -> Any:
    return digest_of(value) if isinstance(value, str) else REDACTED


def _address(value: Any, parent: dict[str, Any], known: tuple[str, ...]) -> Any:
    ours = isinstance(value, str) and (
        {"caBundle", "service"} & parent.keys() or {"name", "namespace"} <= parent.keys()
    )
    return _without_path(value, known) if ours else clean(value, known)


def _command(value: Any, _: dict[str, Any], known: tuple[str, ...]) -> Any:
    return _arguments(value, known) if isinstance(value, list) else clean(value, known)


_SPECIAL: Final[Mapping[str, Callable[[Any, dict[str, Any], tuple[str, ...]], Any]]] = {
    "annotations": _annotations,
    "env": _variables,
    "data": _data,
    "stringData": _dropped,
    "binaryData": _dropped,
    "caBundle": _bundle,
    "parameters": _dropped,
    "url": _address,
    "path": _address,
    "command": _command,
    "args": _command,
}
"""Fields that are not just searched."""


def _is_kept(annotation: str) -> bool:
    return annotation.partition("/")[0] in _KEPT_ANNOTATIONS and annotation not in _DROPPED_ANNOTATIONS


def _variable(value: Any, known: tuple[str, ...]) -> Any:
    """An environment variable without its value, unless it is a flag of ours; where it comes from is kept."""
    if not isinstance(value, dict) or "value" not in value or str(value.get("name")).startswith(_KEPT_VARIABLES):
        return clean(value, known)
    return {**clean(value, known), "value": REDACTED}


def _without_path(url: str, known: tuple[str, ...]) -> str:
    """A webhook's address: an unusual path may be what keeps others out."""
    at = url.find("/", url.find("://") + 3 if "://" in url else 0)
    path = url[at:] if at >= 0 else ""
    kept = url if not path or path.partition("?")[0] in _PATHS else f"{url[:at]}/{REDACTED}"
    return clean_text(kept.partition("?")[0], known)


def _arguments(words: list[Any], known: tuple[str, ...]) -> list[Any]:
    """A command line; of flags that name a secret the value may be a word of its own."""
    cleaned: list[Any] = []
    for number, word in enumerate(words):
        before = str(words[number - 1]) if number else ""
        named = before.startswith("-") and "=" not in before and _ASSIGNED.match(f"{before.lstrip('-')}=xxxx")
        cleaned.append(REDACTED if named and not str(word).startswith("-") else clean(word, known))
    return cleaned


# --- names --------------------------------------------------------------------------------------


class Pseudonyms:
    """Stand-ins for names, the same throughout an archive: `pod-1`, `namespace-2`. Kinds and names are sorted first."""

    def __init__(self, names: Iterable[tuple[str, str]], kept: Iterable[str] = ()) -> None:
        """`names`: kind and name; `kept`: names that stay."""
        stay = {"", "default", "kube-system", *kept}
        given: dict[str, str] = {}
        counts: dict[str, int] = {}
        for kind, name in sorted(set(names)):
            if name not in stay and name not in given:
                counts[kind] = counts.get(kind, 0) + 1
                given[name] = f"{kind}-{counts[kind]}"
        self._given = given
        longest = sorted(given, key=len, reverse=True)
        words = "|".join(map(re.escape, longest))
        self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])") if words else None

    def text(self, text: str) -> str:
        """The text with stand-ins."""
        return text if self._pattern is None else self._pattern.sub(lambda match: self._given[match[0]], text)
