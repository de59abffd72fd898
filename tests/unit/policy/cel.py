"""Expressions of an export, evaluated without an API server."""

from __future__ import annotations

import sys
from typing import Any

import celpy
from celpy.adapter import json_to_cel


def evaluated(expression: str, **variables: Any) -> bool:
    """Whether an expression of an export holds, by celpy."""
    limit = sys.getrecursionlimit()
    try:
        environment = celpy.Environment()
        program = environment.program(environment.compile(expression))
        return bool(program.evaluate({name: json_to_cel(value) for name, value in variables.items()}))
    finally:
        sys.setrecursionlimit(limit)  # celpy raises it
