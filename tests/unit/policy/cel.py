"""Expressions of an export, evaluated without an API server."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import celpy
from celpy.adapter import json_to_cel


@cache
def _program(expression: str) -> celpy.Runner:
    limit = sys.getrecursionlimit()
    try:
        environment = celpy.Environment()
        return environment.program(environment.compile(expression))
    finally:
        sys.setrecursionlimit(limit)  # celpy raises it


def evaluated(expression: str, **variables: Any) -> bool:
    """Whether an expression of an export holds, by celpy."""
    return bool(_program(expression).evaluate({name: json_to_cel(value) for name, value in variables.items()}))
