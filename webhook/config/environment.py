"""Environment variables: which are ours, which Kubernetes sets, and which are mistakes."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX: Final = "DEVICE_TAINT_WEBHOOK_"
_OTHERS: Final = frozenset({f"{PREFIX}NAMESPACE"})
"""Variables that are read although they have no flag."""
_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$"
)
"""What a kubelet sets in each container for each Service, unless the pod has enableServiceLinks: false."""
_SERVICE_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


def text_in(environment: Mapping[str, str], variable: str) -> str | None:
    """A flag's text, or None. `--port` shares its variable with the address of a Service of this product's name."""
    text = environment.get(variable)
    return None if text is not None and _SERVICE_LINK_VALUE.match(text) else text


def unknown_variables(environment: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Variables with our prefix that nothing reads, each with the one that was most likely meant, or an empty text."""
    ours = {name.removeprefix(PREFIX) for name in (*known, *_OTHERS)}
    unknown = {}
    for name in sorted(environment):
        word = name.removeprefix(PREFIX)
        if word != name and word not in ours and not _SERVICE_LINK.search(name):
            meant = difflib.get_close_matches(word, ours, n=1, cutoff=0.8)
            unknown[name] = PREFIX + meant[0] if meant else ""
    return unknown
