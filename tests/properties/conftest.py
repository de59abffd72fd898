"""How hard the laws are tried: HYPOTHESIS_PROFILE=ci for what CI runs, otherwise what fits into an inner loop."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
