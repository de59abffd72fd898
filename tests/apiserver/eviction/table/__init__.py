"""All scenarios."""

from typing import Final

from tests.apiserver.eviction.scenario import Scenario
from tests.apiserver.eviction.table.changes import CHANGES
from tests.apiserver.eviction.table.deletions import DELETIONS
from tests.apiserver.eviction.table.pods import PODS
from tests.apiserver.eviction.table.restarts import RESTARTS
from tests.apiserver.eviction.table.statuses import STATUSES
from tests.apiserver.eviction.table.taints import TAINTS

SCENARIOS: Final[tuple[Scenario, ...]] = (*TAINTS, *PODS, *CHANGES, *DELETIONS, *STATUSES, *RESTARTS)
