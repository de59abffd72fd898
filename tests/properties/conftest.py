"""How hard the laws are tried: HYPOTHESIS_PROFILE=ci for what CI runs, otherwise what fits into an inner loop.

CI tries the same examples each time, so that a change is judged by what it changes; the inner loop tries new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
