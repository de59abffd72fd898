"""How a pod is made to go (E-28 to E-34)."""

from typing import Final

from tests.apiserver.eviction.scenario import Claim, Due, Pod, Scenario, holding
from tests.apiserver.eviction.steps import Admit, Delete, Forbid, Gone, LabelClaim, LabelPod, Pass, Permit, Taint
from tests.apiserver.eviction.table.taints import AN_HOUR
from tests.apiserver.eviction.table.texts import ONE_GONE, ONE_PENDING_ONE_GONE, TWO_GONE

DELETIONS: Final = (
    Scenario(
        name="a pod's namesake is another pod",
        shows="E-25 E-28",
        pods=(Pod("later", (Claim(("*:NoExecute:30",), name="claim"),)), Pod("now")),
        steps=(
            Taint(),
            Gone(),
            Delete("later"),
            # its claim is still reserved for the other one
            Admit(Pod("later", (Claim(name="claim", allocated=False),), called="namesake")),
            Pass(Due("r", 30)),
        ),
        evicted={"now": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a pod that goes meanwhile by itself is not deleted when its time comes",
        shows="E-29",
        pods=(Pod("a", (Claim(("*:NoExecute:30",)),), grace_seconds=300), Pod("now")),
        steps=(Taint(), Gone(), Delete("a"), Pass(Due("r", 30))),
        evicted={"now": Due()},
        conditions={"r": ONE_GONE},
        in_tree_conditions={"r": TWO_GONE},
        since_1_38={"r": ONE_GONE},
        why="before 1.38 the in-tree controller counts it as evicted",
    ),
    Scenario(
        name="a pod that takes its time to go is deleted once",
        shows="E-31 E-33 E-34",
        pods=(holding("later", AN_HOUR), Pod("a", grace_seconds=300)),
        steps=(Taint(), Gone("a"), LabelClaim("a-0"), LabelPod("a")),
        evicted={"a": Due()},
        conditions={"r": ONE_PENDING_ONE_GONE},
    ),
    Scenario(
        name="a deletion that is refused is tried again until it is not",
        shows="E-32 E-33",
        steps=(Forbid(), Taint(), Permit(refusals=3)),
        evicted={"a": Due()},
        conditions={"r": ONE_GONE},
    ),
)
