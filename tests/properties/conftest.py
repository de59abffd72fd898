"""How hard the laws are tried: HYPOTHESIS_PROFILE=ci for what CI runs, otherwise what fits into an inner loop.

CI tries the same examples each time, so that a change is judged by what it changes; the inner loop tries new ones.
How long examples take to draw is not judged: Hypothesis' check of it times the machine, which may be busy.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

UNTIMED = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=20, deadline=None, suppress_health_check=UNTIMED)
settings.register_profile(
    "ci", max_examples=500, deadline=None, suppress_health_check=UNTIMED, derandomize=True, database=None
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
