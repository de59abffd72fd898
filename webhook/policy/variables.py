"""The variables that `when` may use, by what is judged. Types only: `admission` fills in the values.

A fact that is not known is left out, and so is a field that is not set: `toleration.tolerationSeconds` (for ever),
`taint.timeAdded`, `rule.driver`, `rule.pool`, `rule.device`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from webhook.expressions.types import ListType, MapType, ObjectType, Scalar, VariableType

_STRINGS: Final = ListType(Scalar.STRING)
_TEXTS: Final = MapType(Scalar.STRING)

_REQUESTER: Final = ObjectType({"username": Scalar.STRING, "groups": _STRINGS, "serviceAccount": Scalar.STRING})

REQUEST_VARIABLES: Final[Mapping[str, VariableType]] = MappingProxyType(
    {
        "request": ObjectType(
            {
                "name": Scalar.STRING,
                "deviceClassName": Scalar.STRING,
                "count": Scalar.INT,
                "allocationMode": Scalar.STRING,
                "adminAccess": Scalar.BOOL,
                "alternative": Scalar.BOOL,
            }
        ),
        "claim": ObjectType(
            {
                "name": Scalar.STRING,
                "generateName": Scalar.STRING,
                "namespace": Scalar.STRING,
                "labels": _TEXTS,
                "annotations": _TEXTS,
                "template": Scalar.BOOL,
                "generated": Scalar.BOOL,
            }
        ),
        "namespace": ObjectType({"name": Scalar.STRING, "labels": _TEXTS}),
        "requester": _REQUESTER,
        "drivers": _STRINGS,
    }
)
"""For rules whose subject is the request."""

TOLERATION_VARIABLES: Final[Mapping[str, VariableType]] = MappingProxyType(
    {
        "toleration": ObjectType(
            {
                "key": Scalar.STRING,
                "operator": Scalar.STRING,
                "value": Scalar.STRING,
                "effect": Scalar.STRING,
                "tolerationSeconds": Scalar.INT,
            }
        ),
        **REQUEST_VARIABLES,
    }
)
"""For rules whose subject is a toleration, and for exceptions to them."""

TAINT_VARIABLES: Final[Mapping[str, VariableType]] = MappingProxyType(
    {
        "taint": ObjectType(
            {"key": Scalar.STRING, "value": Scalar.STRING, "effect": Scalar.STRING, "timeAdded": Scalar.STRING}
        ),
        "rule": ObjectType(
            {
                "name": Scalar.STRING,
                "driver": Scalar.STRING,
                "pool": Scalar.STRING,
                "device": Scalar.STRING,
                "annotations": _TEXTS,
                "evict": Scalar.BOOL,
            }
        ),
        "requester": _REQUESTER,
    }
)
"""For `taintRules`."""
