"""What the condition of a rule counts (E-39 to E-43), beside pods that go for it.

That we also say whether devices are free (condition Released) is an addition, and no difference.
"""

from typing import Final

from tests.apiserver.eviction.scenario import GROUP, NOBODY, Claim, Due, Pod, Scenario, holding
from tests.apiserver.eviction.steps import Admit, Change, Delete, Gone, Pass, Publish, Says, Step, Taint
from tests.apiserver.eviction.table.taints import AN_HOUR, FOR_EVER
from tests.apiserver.eviction.table.texts import (
    NOT_STARTED,
    ONE_GONE,
    ONE_PENDING,
    ONE_PENDING_ONE_GONE,
    OTHER,
    no_effect,
)
from tests.controlplane.versions import FACTS

NONE_PUBLISHED: Final = "0 published devices"
IN_TREE_PODS: Final = "4 pods" if FACTS.extended_evicted else "3 pods"
NO_PODS: Final = "0 pods", "0 different namespaces"
ONE_POD: Final = "1 pod", "1 namespace"
GRACE_SECONDS: Final = 300
"""No kubelet ends the pods, so they are terminating until the end."""


def seen() -> tuple[Step, ...]:
    """The evictor has seen all that was done before: a pod came later, is gone, and that was ten seconds ago."""
    return Admit(Pod("now")), Taint("p", selects={"device": "now-0"}), Gone(), Says(ONE_GONE, "p")


STATUSES: Final = (
    # --- effect None: E-40 -----------------------------------------------------------------------
    Scenario(
        name="effect None counts the pods that would go, and no others",
        shows="E-15 E-18 E-40",
        pods=(
            Pod("a"),
            holding("later", AN_HOUR),
            holding("tolerant", FOR_EVER),
            Pod("unscheduled", scheduled=False),
            Pod("idle", (Claim(reserved_for=NOBODY),)),
            Pod("waiting", phase="Pending"),
            Pod("b", (Claim(behind=("widgets.example.com/widgets/w",)),)),
        ),
        # the claim of the pod that is gone is still reserved for it
        steps=(Publish({"a-0": (), "b-0": (), "free": ()}), *seen(), Taint(effect="None")),
        evicted={"now": Due("p")},
        conditions={"r": no_effect("3 published devices", "8 allocated devices", "4 pods", "1 namespace")},
    ),
    Scenario(
        name="effect None counts no pod that is being deleted",
        shows="E-40 E-43",
        pods=(Pod("a", grace_seconds=GRACE_SECONDS), Pod("b", grace_seconds=GRACE_SECONDS)),
        steps=(
            Delete("a"),
            *seen(),
            Taint("r", "None", {"device": "a-0"}),
            Taint("q", "None", {"driver": "", "pool": "pool", "device": "b-0"}),
        ),
        evicted={"now": Due("p")},
        conditions={
            "r": no_effect(NONE_PUBLISHED, "1 allocated device", *NO_PODS),
            "q": no_effect(NONE_PUBLISHED, "1 allocated device", *ONE_POD),
        },
    ),
    Scenario(
        name="effect None counts no pod that was evicted before",
        shows="E-40 E-42",
        pods=(Pod("a", grace_seconds=GRACE_SECONDS),),
        steps=(
            Taint(selects={"device": "a-0"}),
            Gone("a"),
            Says(ONE_GONE),
            *seen(),
            Change(taint={"effect": "None"}),
            Taint("q", "None", {"device": "a-0"}),
        ),
        evicted={"a": Due("r 0"), "now": Due("p")},
        conditions={
            "r": no_effect(NONE_PUBLISHED, "1 allocated device", *NO_PODS, "1 pod"),
            "q": no_effect(NONE_PUBLISHED, "1 allocated device", *NO_PODS),
        },
    ),
    Scenario(
        name="effect None without a selector, or with one that hits nothing, counts nothing",
        shows="E-6 E-40",
        steps=(
            Publish({"a-0": ()}),
            Taint("p", "None", None),
            Taint("q", "None", {"driver": "another.example.com"}),
        ),
        conditions={
            "p": no_effect(NONE_PUBLISHED, "0 allocated devices", *NO_PODS),
            "q": no_effect(NONE_PUBLISHED, "0 allocated devices", *NO_PODS),
        },
    ),
    Scenario(
        name="effect None counts the pods of a group, and a pod with several devices once",
        shows="E-17 E-18 E-40",
        pods=(
            Pod("one", (Claim(name="common", reserved_for=GROUP),), group=GROUP),
            Pod("two", (Claim(name="common", reserved_for=GROUP),), group=GROUP),
            Pod("others", (Claim(name="common", reserved_for=GROUP),), group="others"),
            Pod("several", (Claim(), Claim(devices={"x": (), "y": ()}))),
        ),
        steps=(Taint(effect="None"),),
        conditions={"r": no_effect(NONE_PUBLISHED, "4 allocated devices", "3 pods", "1 namespace")},
    ),
    Scenario(
        name="effect None is not counted again, before its spec changes",
        shows="E-40",
        steps=(
            Taint(effect="None"),
            Says(no_effect(NONE_PUBLISHED, "1 allocated device", *ONE_POD)),
            *seen(),
            Taint("q", "None"),
            Says(no_effect(NONE_PUBLISHED, "2 allocated devices", *ONE_POD), "q"),
        ),
        evicted={"now": Due("p")},
        conditions={"r": no_effect(NONE_PUBLISHED, "1 allocated device", *ONE_POD)},
    ),
    Scenario(
        name="effect None counts as its evictor evicts",
        shows="E-9 E-16 E-19 E-40",
        pods=(
            holding("empty", "*"),
            Pod("done", phase="Succeeded"),
            Pod("extended", (Claim(extended=True),)),
            Pod("a"),
        ),
        steps=(Taint(effect="None"),),
        conditions={"r": no_effect(NONE_PUBLISHED, "4 allocated devices", "2 pods", "1 namespace")},
        in_tree_conditions={"r": no_effect(NONE_PUBLISHED, "4 allocated devices", IN_TREE_PODS, "1 namespace")},
        since_1_38={"r": no_effect(NONE_PUBLISHED, "4 allocated devices", "3 pods", "1 namespace")},
        why="theirs: a pod that has run to its end, extended resources from 1.37.2, no toleration's effect before 1.38",
    ),
    # --- NoExecute: E-39, E-43 -------------------------------------------------------------------
    Scenario(
        name="a rule that hits nothing but a pod that is being deleted",
        shows="E-29 E-39 E-43",
        pods=(Pod("a", grace_seconds=GRACE_SECONDS),),
        steps=(Delete("a"), *seen(), Taint(selects={"device": "a-0"})),
        evicted={"now": Due("p")},
        conditions={"r": NOT_STARTED},
        in_tree_conditions={"r": ONE_GONE},
        since_1_38={"r": NOT_STARTED},
        why="before 1.38 the in-tree controller counts it as evicted",
    ),
    Scenario(
        name="a pod that is being deleted and tolerates the taint for a while is not pending",
        shows="E-39 E-43",
        pods=(Pod("a", (Claim((AN_HOUR,)),), grace_seconds=GRACE_SECONDS), holding("later", AN_HOUR)),
        steps=(
            Delete("a"),
            *seen(),
            Taint("r", selects={"device": "a-0"}),
            Taint("q"),
        ),
        evicted={"now": Due("p")},
        conditions={"r": NOT_STARTED, "q": ONE_PENDING},
    ),
    Scenario(
        name="a pod that is evicted and takes its time to go is not pending",
        shows="E-39 E-43",
        pods=(Pod("a", grace_seconds=GRACE_SECONDS), holding("later", AN_HOUR)),
        steps=(Taint(), Gone("a")),
        evicted={"a": Due()},
        conditions={"r": ONE_PENDING_ONE_GONE},
    ),
    Scenario(
        name="what was evicted is counted whatever the effect is now",
        shows="E-41 E-42",
        steps=(Taint(), Gone("a"), Says(ONE_GONE), Change(taint={"effect": "NoSchedule"})),
        evicted={"a": Due("r 0")},
        conditions={"r": f"{OTHER} 1 pod evicted since starting the controller."},
    ),
    Scenario(
        name="a second rule on a pod that is being deleted has nothing to do",
        shows="E-29 E-39",
        pods=(Pod("a", grace_seconds=GRACE_SECONDS),),
        steps=(
            Taint(selects={"device": "a-0"}),
            Gone("a"),
            Says(ONE_GONE),
            *seen(),
            Taint("q", selects={"device": "a-0"}),
            Pass(Due("q"), 12),
        ),
        evicted={"a": Due(), "now": Due("p")},
        conditions={"r": ONE_GONE, "p": ONE_GONE, "q": NOT_STARTED},
    ),
)
