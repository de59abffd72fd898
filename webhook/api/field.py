"""Field paths and field errors, with the API server's own types, paths and words.

Source: apimachinery/pkg/util/validation/field. Rules live in `validation`, not here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

JSON: TypeAlias = Any
"""A decoded JSON value. `Any`, because nothing may be assumed of it before a `Reader` looked."""

MAX_KEY_IN_PATH: Final = 96
"""Map keys longer than this are shortened in the middle when a path is printed (P-5)."""


class Path:
    """Where a value stands in an object, as a chain from the root.

    A path has two readings. `str(path)` is the one that the API server reports after it converted the object to
    its internal version, `written` the one the author of the manifest wrote; they differ only in
    v1beta1 (`basic`, requests without `exactly`).
    """

    __slots__ = ("normal", "parent", "written_step")

    def __init__(self, parent: Path | None, normal: str, written: str | None = None) -> None:
        """`normal` and `written` are rendered steps: `.name`, `[3]`, `[key]`, or nothing at all."""
        self.parent = parent
        self.normal = normal
        self.written_step = normal if written is None else written

    @classmethod
    def root(cls) -> Path:
        """The object itself."""
        return cls(None, "")

    def child(self, *names: str) -> Path:
        """The field `names[0]`, and so on downwards."""
        path = self
        for name in names:
            path = Path(path, f".{name}")
        return path

    def index(self, position: int) -> Path:
        """The entry of a list."""
        return Path(self, f"[{position}]")

    def key(self, key: str) -> Path:
        """The entry of a map."""
        if len(key) > MAX_KEY_IN_PATH:
            half = (MAX_KEY_IN_PATH - 3) // 2
            key = f"{key[: half + 1]}...{key[-half:]}"
        return Path(self, f"[{key}]")

    def only_written(self, name: str) -> Path:
        """A field that the manifest has and the normalized object has not (`basic`)."""
        return Path(self, "", f".{name}")

    def only_normalized(self, name: str) -> Path:
        """A field that the normalized object has and the manifest has not (`exactly`)."""
        return Path(self, f".{name}", "")

    def _steps(self) -> list[Path]:
        steps: list[Path] = []
        at: Path | None = self
        while at is not None:
            steps.append(at)
            at = at.parent
        steps.reverse()
        return steps

    def __str__(self) -> str:
        """The path as the API server reports it."""
        return "".join(step.normal for step in self._steps()).removeprefix(".")

    @property
    def written(self) -> str:
        """The path as it stands in the manifest."""
        return "".join(step.written_step for step in self._steps()).removeprefix(".")

    def __repr__(self) -> str:
        return f"Path({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and str(self) == str(other) and self.written == other.written

    def __hash__(self) -> int:
        return hash(str(self))


class ErrorType(StrEnum):
    """The API server's machine-readable reasons (`status.details.causes[].reason`)."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"
    NOT_FOUND = "FieldValueNotFound"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    TYPE_INVALID = "FieldValueTypeInvalid"
    INTERNAL = "InternalError"


_WORDS: Final = {
    ErrorType.REQUIRED: "Required value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.NOT_FOUND: "Not found",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.TYPE_INVALID: "Invalid value",
    ErrorType.INTERNAL: "Internal error",
}
_WITHOUT_VALUE: Final = frozenset({ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL})
_LONGEST_VALUE: Final = 256


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with one field.

    `declarative` marks checks that the API server makes before it converts the object: it reports them at the
    path as written (V-5).
    """

    type: ErrorType
    path: Path
    bad_value: JSON = None
    detail: str = ""
    declarative: bool = False

    @property
    def field(self) -> str:
        """The path in the reading that the API server reports for this error."""
        return self.path.written if self.declarative else str(self.path)

    @property
    def body(self) -> str:
        """`Reason: value: detail`, without the path: the message of a status cause."""
        words = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE:
            words = f"{words}: {quoted(self.bad_value)}"
        return f"{words}: {self.detail}" if self.detail else words

    def __str__(self) -> str:
        return f"{self.field}: {self.body}" if self.field else self.body


def quoted(value: JSON) -> str:
    """The value as a message shows it: JSON, with the middle of long values cut out."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[: _LONGEST_VALUE - 40]}... ({len(text)} characters) ...{text[-20:]}"


def outline(value: JSON) -> JSON:
    """The part of the value that a message needs: the size of a container, not its content."""
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)} entries"
    return value


def required(path: Path, detail: str = "", *, declarative: bool = False) -> FieldError:
    """`Required value`."""
    return FieldError(ErrorType.REQUIRED, path, "", detail, declarative)


def invalid(path: Path, value: JSON, detail: str, *, declarative: bool = False) -> FieldError:
    """`Invalid value`."""
    return FieldError(ErrorType.INVALID, path, value, detail, declarative)


def not_supported(path: Path, value: JSON, supported: Iterable[str], *, declarative: bool = False) -> FieldError:
    """`Unsupported value`, with the supported ones sorted."""
    names = ", ".join(json.dumps(name) for name in sorted(supported))
    return FieldError(ErrorType.NOT_SUPPORTED, path, value, f"supported values: {names}", declarative)


def too_many(path: Path, count: int, maximum: int, *, declarative: bool = False) -> FieldError:
    """`Too many`: the value is the number found."""
    items = "item" if maximum == 1 else "items"
    return FieldError(ErrorType.TOO_MANY, path, count, f"must have at most {maximum} {items}", declarative)


def too_long(path: Path, max_bytes: int, *, declarative: bool = False) -> FieldError:
    """`Too long`: the value is left out on purpose."""
    return FieldError(ErrorType.TOO_LONG, path, "", f"may not be more than {max_bytes} bytes", declarative)


def forbidden(path: Path, detail: str) -> FieldError:
    """`Forbidden`."""
    return FieldError(ErrorType.FORBIDDEN, path, "", detail)


def internal_error(path: Path, detail: str) -> FieldError:
    """`Internal error`: what the API server says of an expression that compiles and can never be evaluated."""
    return FieldError(ErrorType.INTERNAL, path, "", detail)


def duplicate(path: Path, value: JSON, *, declarative: bool = False) -> FieldError:
    """`Duplicate value`."""
    return FieldError(ErrorType.DUPLICATE, path, value, "", declarative)


def not_found(path: Path, value: JSON) -> FieldError:
    """`Not found`: the value names something that is not there."""
    return FieldError(ErrorType.NOT_FOUND, path, value)


def type_invalid(path: Path, value: JSON, expected: str) -> FieldError:
    """A JSON value of another type than the field has; the API server answers these with 400."""
    return FieldError(ErrorType.TYPE_INVALID, path, value, f"must be {expected}")


class Severity(StrEnum):
    """What a finding does to the answer."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to tell about a request: an error and how much it weighs.

    `code` is a stable `DTnnn` with an entry in `explain/codes.md`; `rule` a rule's name in the policy. `documented` is
    for errors of documented rules. `turned_down` is for a refusal that a setting of the policy turns into a warning.
    """

    severity: Severity
    error: FieldError
    code: str | None = None
    rule: str | None = None
    documented: bool = False
    turned_down: bool = False

    @classmethod
    def refusal(
        cls, error: FieldError, *, enforced: bool, rule: str | None = None, documented: bool = False
    ) -> Finding:
        """A refusal, or what is left of it where the policy does not enforce it."""
        severity = Severity.DENY if enforced else Severity.WARN
        return cls(severity, error, rule=rule, documented=documented, turned_down=not enforced)

    @property
    def body(self) -> str:
        """The message without the path: the whole error where it refuses the object, else a sentence alone.

        A warning keeps the API server's words only for a documented rule that is not enforced, as in
        `Too many: 17: ...`; "Forbidden" is for refusals alone.
        """
        worded = self.code is not None or self.rule is not None or self.error.type is ErrorType.FORBIDDEN
        return self.error.detail if worded and self.severity is not Severity.DENY else self.error.body

    def __str__(self) -> str:
        return f"{self.error.field}: {self.body}" if self.error.field else self.body

    @property
    def name(self) -> str:
        """What spoke, for metrics, the log and audit annotations: a code, a rule, `documented` or `field`."""
        return self.code or self.rule or ("documented" if self.documented else "field")

    @property
    def policy(self) -> bool:
        """Whether a rule of the policy said so, which makes the answer a 403 rather than a 422."""
        return self.rule is not None
