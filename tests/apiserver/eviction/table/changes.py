"""What makes an evictor think again (E-14, E-22 to E-26)."""

from typing import Final

from tests.apiserver.eviction.scenario import KEY, NOBODY, Claim, Due, Pod, Scenario, holding
from tests.apiserver.eviction.steps import (
    Admit,
    Allocate,
    Cancelled,
    Change,
    ClaimAnew,
    Deallocate,
    Delete,
    DeleteClaim,
    Gone,
    LabelClaim,
    LabelPod,
    Marked,
    Pass,
    Publish,
    Reserve,
    Says,
    Taint,
    Unpublish,
    Untaint,
)
from tests.apiserver.eviction.table.taints import AN_HOUR, FOR_EVER
from tests.apiserver.eviction.table.texts import NOT_STARTED, ONE_GONE, ONE_PENDING, ONE_PENDING_ONE_GONE, TWO_GONE

LATER_AND_NOW: Final = (holding("later", AN_HOUR), Pod("now"))
"""In this order: by the time at which the second is gone, the first is planned."""
BOTH: Final = {"later-0": (Marked("s"),), "now-0": (Marked("t"),)}

CHANGES: Final = (
    # --- slices: E-22 ----------------------------------------------------------------------------
    Scenario(
        name="a taint that leaves its slice is a reason no more",
        shows="E-22 E-26 E-34",
        pods=LATER_AND_NOW,
        steps=(Publish(BOTH), Gone(), Publish({"later-0": (), "now-0": ()})),
        evicted={"now": Due("t")},
        cancelled=("later",),
    ),
    Scenario(
        name="a slice that goes takes its taints along",
        shows="E-22 E-26",
        pods=LATER_AND_NOW,
        steps=(Publish(BOTH), Gone(), Unpublish()),
        evicted={"now": Due("t")},
        cancelled=("later",),
    ),
    Scenario(
        name="a newer generation without the taint ends it",
        shows="E-5 E-22",
        pods=LATER_AND_NOW,
        steps=(Publish(BOTH), Gone(), Publish({"later-0": ()}, "newer", 2)),
        evicted={"now": Due("t")},
        cancelled=("later",),
    ),
    Scenario(
        name="a newer generation without the device ends its taints, too",
        shows="E-5 E-22",
        pods=LATER_AND_NOW,
        steps=(Publish(BOTH), Gone(), Publish({"another": ()}, "newer", 2)),
        evicted={"now": Due("t")},
        cancelled=("later",),
    ),
    Scenario(
        name="a newer generation may bring a taint, and its end the one below",
        shows="E-5 E-22",
        pods=(Pod("a"), Pod("b")),
        steps=(
            Publish({"a-0": (), "b-0": ()}, "newer", 2),
            Publish({"a-0": (), "b-0": (Marked("old"),)}, "older", 1),
            Publish({"a-0": (Marked("s"),), "b-0": ()}, "newest", 3),
            Gone("a"),
            Unpublish("newest"),
            Unpublish("newer"),
        ),
        evicted={"a": Due("s"), "b": Due("old")},
    ),
    Scenario(
        name="a slice that changes elsewhere changes nothing",
        shows="E-22 E-26",
        pods=(holding("a", "*:NoExecute:6"), Pod("b")),
        steps=(
            Publish({"a-0": (Marked("s"),), "b-0": ()}),
            Publish({"a-0": (Marked("s"),), "b-0": (Marked("t"),)}),
            Gone("b"),
            Publish({"b-0": (), "a-0": (Marked("s"),)}),
        ),
        evicted={"a": Due("s", 6), "b": Due("t")},
    ),
    # --- rules: E-23 -----------------------------------------------------------------------------
    Scenario(
        name="a rule that is deleted is a reason no more",
        shows="E-23 E-26 E-34",
        pods=LATER_AND_NOW,
        steps=(Taint(), Gone(), Says(ONE_PENDING_ONE_GONE), Untaint()),
        evicted={"now": Due()},
        cancelled=("later",),
    ),
    Scenario(
        name="a rule comes to act with its effect, and ceases to",
        shows="E-7 E-23 E-26",
        pods=LATER_AND_NOW,
        steps=(
            Taint(effect="None"),
            Change(taint={"effect": "NoExecute"}),
            Gone(),
            Change(taint={"effect": "None"}),
        ),
        evicted={"now": Due("r 1")},
        cancelled=("later",),
    ),
    Scenario(
        name="a rule that acts again begins anew",
        shows="E-8 E-23",
        pods=(holding("a", "*:NoExecute:74"), holding("b", "*:NoExecute:75"), Pod("now")),
        steps=(
            Taint(),
            Gone(),
            Change(taint={"effect": "NoSchedule"}),
            Cancelled(("a", "b")),
            Change(taint={"effect": "NoExecute"}),
        ),
        evicted={"a": Due("r 2", 74), "b": Due("r 2", 75), "now": Due("r 0")},
        cancelled=("a", "b"),
        conditions={"r": "False Completed: 3 pods evicted since starting the controller."},
    ),
    Scenario(
        name="a rule may come to select other devices",
        shows="E-6 E-23",
        pods=(holding("later", AN_HOUR), Pod("now"), Pod("a")),
        steps=(
            Taint("p", selects={"device": "now-0"}),
            Taint("r", selects={"device": "later-0"}),
            Says(ONE_PENDING),
            Change(selects={"driver": "", "device": "a-0"}),
        ),
        evicted={"now": Due("p"), "a": Due()},
        cancelled=("later",),
        conditions={"p": ONE_GONE, "r": ONE_GONE},
    ),
    Scenario(
        name="a rule may come to be tolerated, or not to be any more",
        shows="E-9 E-23",
        pods=(
            holding("later", AN_HOUR, "example.com/fine:NoExecute"),
            holding("keyed", f"{KEY}:NoExecute"),
            Pod("now"),
        ),
        steps=(Taint(), Gone(), Change(taint={"key": "example.com/fine"})),
        evicted={"now": Due(), "keyed": Due()},
        cancelled=("later",),
        conditions={"r": TWO_GONE},
    ),
    # --- claims: E-14, E-24 ----------------------------------------------------------------------
    Scenario(
        name="a claim that is allocated under a taint makes its pod go",
        shows="E-24",
        pods=(Pod("a", (Claim(allocated=False),)),),
        steps=(Taint(), Says(NOT_STARTED), Allocate("a-0", "a")),
        evicted={"a": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a claim that loses its devices makes nobody go",
        shows="E-24 E-26",
        pods=LATER_AND_NOW,
        steps=(Taint(), Gone(), Deallocate("later-0")),
        evicted={"now": Due()},
        cancelled=("later",),
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a claim that is deleted makes nobody go",
        shows="E-24 E-26",
        pods=LATER_AND_NOW,
        steps=(Taint(), Gone(), DeleteClaim("later-0")),
        evicted={"now": Due()},
        cancelled=("later",),
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="whoever comes into reservedFor goes, whoever leaves it stays",
        shows="E-18 E-24 E-26",
        pods=(
            Pod("joins", (Claim(("*:NoExecute:2",), name="shared", reserved_for=NOBODY),)),
            Pod("leaves", (Claim((AN_HOUR,)),)),
            Pod("now"),
        ),
        steps=(Taint(), Gone(), Reserve("shared", ("joins",)), Reserve("leaves-0")),
        evicted={"now": Due(), "joins": Due("r", 2)},
        cancelled=("leaves",),
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim that changes otherwise changes nothing",
        shows="E-14",
        pods=(holding("a", "*:NoExecute:30"), Pod("now")),
        steps=(Taint(), Gone(), LabelClaim("a-0"), LabelPod("a")),
        evicted={"now": Due(), "a": Due("r", 30)},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim's namesake is another claim",
        shows="E-14 E-24",
        pods=LATER_AND_NOW,
        steps=(Taint(), Gone(), DeleteClaim("later-0"), ClaimAnew("later-0", "later", (FOR_EVER,))),
        evicted={"now": Due()},
        cancelled=("later",),
        conditions={"r": ONE_GONE},
    ),
    # --- pods and plans: E-25, E-26 --------------------------------------------------------------
    Scenario(
        name="a pod that comes to a tainted device goes",
        shows="E-25",
        pods=(),
        steps=(Taint(ago=3600), Says(NOT_STARTED), Admit(Pod("a")), Admit(holding("b", "*:NoExecute:3606"))),
        evicted={"a": Due(), "b": Due("r", 3606)},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a pod that goes by itself is forgotten in silence",
        shows="E-25",
        pods=LATER_AND_NOW,
        steps=(Taint(), Gone(), Delete("later")),
        evicted={"now": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a second taint may bring the time forward, and its end put it back",
        shows="E-11 E-26",
        pods=(
            holding("forward", f"{KEY}:NoExecute:3600", "example.com/second:NoExecute:5"),
            holding("back", f"{KEY}:NoExecute:3600", "example.com/third:NoExecute:75"),
            Pod("now"),
        ),
        steps=(
            Taint("p"),
            Gone(),
            Taint("q", key="example.com/second", selects={"device": "forward-0"}),
            Taint("s", key="example.com/third", selects={"device": "back-0"}),
            Says(ONE_PENDING, "s"),
            Untaint("s"),
            Pass(Due("s", 75)),
        ),
        evicted={"now": Due("p"), "forward": Due("q", 5)},
        conditions={
            "p": "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace. "
            "2 pods evicted since starting the controller.",
            "q": ONE_GONE,
        },
    ),
)
