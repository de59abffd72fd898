"""Claims of PodGroups in a cluster whose gate DRAWorkloadResourceClaims was on once, and is off now (E-17, E-18)."""

from typing import Final

from tests.apiserver.eviction.scenario import GROUP, Claim, Due, Pod, Scenario
from tests.apiserver.eviction.steps import Taint
from tests.apiserver.eviction.table.texts import ONE_GONE, THREE_GONE, TWO_GONE, no_effect

WHY: Final = "no API says that the gate is off, and the pods use the devices all the same"

GROUPS: Final = (
    Scenario(
        name="a claim that is reserved for a group, with the gate off",
        shows="E-18",
        pods=(
            Pod("member", (Claim(name="common", reserved_for=GROUP),), group=GROUP),
            Pod("another", (Claim(name="common", reserved_for=GROUP),), group="others"),
            Pod("a"),
        ),
        steps=(Taint(),),
        evicted={"member": Due(), "a": Due()},
        in_tree={"a": Due()},
        conditions={"r": TWO_GONE},
        in_tree_conditions={"r": ONE_GONE},
        why=WHY,
    ),
    Scenario(
        name="a claim made for a group, with the gate off",
        shows="E-17",
        pods=(
            Pod("group", (Claim(generated=True, made_for=GROUP, reserved_for=GROUP),), group=GROUP),
            Pod("itself", (Claim(generated=True, made_for=GROUP),), group=GROUP),
            Pod("a", group=GROUP),
        ),
        steps=(Taint(),),
        evicted={"group": Due(), "itself": Due(), "a": Due()},
        in_tree={"a": Due()},
        conditions={"r": THREE_GONE},
        in_tree_conditions={"r": ONE_GONE},
        why=WHY,
    ),
    Scenario(
        name="a pod that a claim is reserved for behind a group, with the gate off",
        shows="E-18",
        pods=(Pod("a", (Claim(behind=("scheduling.k8s.io/podgroups/others",)),), group=GROUP),),
        steps=(Taint(),),
        evicted={"a": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="effect None and the pods of a group, with the gate off",
        shows="E-40",
        pods=(Pod("member", (Claim(name="common", reserved_for=GROUP),), group=GROUP), Pod("a")),
        steps=(Taint(effect="None"),),
        conditions={"r": no_effect("0 published devices", "2 allocated devices", "2 pods", "1 namespace")},
        in_tree_conditions={"r": no_effect("0 published devices", "2 allocated devices", "1 pod", "1 namespace")},
        why=WHY,
    ),
)
