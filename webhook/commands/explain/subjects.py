"""What `explain` may be asked about besides files and codes: a pod, a claim, a device or a rule, by name."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.commands.shared.kubectl_names import type_in

if TYPE_CHECKING:
    from collections.abc import Sequence


class SubjectKind(StrEnum):
    """The kinds; the values are those of the JSON."""

    POD = "Pod"
    CLAIM = "ResourceClaim"
    DEVICE = "Device"
    RULE = "DeviceTaintRule"


KINDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), SubjectKind.POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), SubjectKind.CLAIM),
    **dict.fromkeys(("device", "devices"), SubjectKind.DEVICE),
    **dict.fromkeys(("rule", "rules", "devicetaintrule", "devicetaintrules"), SubjectKind.RULE),
}
"""By the words for them, as kubectl has them for resources."""
_PARTS: Final = 3


class ExplainSubject(NamedTuple):
    """What is asked about. `name` of a device is `driver/pool/device`."""

    kind: SubjectKind
    name: str


def subject_in(words: Sequence[str]) -> ExplainSubject | None:
    """The subject that words name, as `pod NAME` or `pod/NAME`; None if they are files or codes.

    A file of the name of a kind is named with its folder: `./pod`. Raises ValueError for a subject that is incomplete.
    """
    kind = KINDS.get(type_in(words[0]))
    name = "/".join(words[1:])
    if kind is None and len(words) == 1:
        word, _, name = words[0].partition("/")
        kind = KINDS.get(type_in(word)) if name else None
    if kind is None:
        return None
    if not name or len(words) > 2:
        raise ValueError(f"explains one {words[0]} at a time; name it after that word")
    if kind is SubjectKind.DEVICE and (name.count("/") < _PARTS - 1 or not all(name.split("/"))):
        raise ValueError("a device is named as DRIVER/POOL/DEVICE, as `list` shows it")
    return ExplainSubject(kind, name)


def device_parts(name: str) -> tuple[str, str, str]:
    """Driver, pool and device of a name; only the pool may have slashes."""
    driver, _, rest = name.partition("/")
    pool, _, device = rest.rpartition("/")
    return driver, pool, device
