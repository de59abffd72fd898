"""How hard the laws are tried: HYPOTHESIS_PROFILE=ci for what CI runs, otherwise what fits into an inner loop.

CI tries the same examples each time, so that a change is judged by what it changes, and more of them would only be the
same again. The inner loop tries new ones, and so does HYPOTHESIS_PROFILE=thorough, which takes half an hour.
How long examples take to draw is not judged: Hypothesis' check of it times the machine, which may be busy.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

UNTIMED = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=20, deadline=None, suppress_health_check=UNTIMED)
settings.register_profile(
    "ci", max_examples=250, deadline=None, suppress_health_check=UNTIMED, derandomize=True, database=None
)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
