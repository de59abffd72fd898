"""The part of the story that empties devices, by our worker. Told with a control plane only."""

from __future__ import annotations

from tests.demo.scenes import Chapter, Step

_RACK = (
    "Thirty pods use the GPUs of a rack. 29 train, under a disruption budget: three may be unavailable at a time. "
    "An engineer is debugging one of them. A spare rack has room for the others."
)
_NOTEBOOK_RUNS = "kubectl wait -n rack --for=condition=Ready pod/notebook --timeout=4m"
_HOLD = 'kubectl annotate -n rack pod train-7 devicetaint.io/hold="debugging, ask anna"'
_FIRMWARE = "The rack needs new firmware. The rule keeps new pods away, and asks our worker to drain it."
_PROGRESS = (
    "kubectl get devicetaintrule firmware --watch "
    r"""-o jsonpath='{.status.conditions[?(@.type=="devicetaint.io/Eviction")].message}{"\n"}'"""
)
_DONE = "; 2 pods pending in 1 namespace; 1 held"
_FIRMWARE_REMARK = (
    "28 have moved, never more than three at a time: the worker uses the Eviction API and waits for the budget. "
    "The pod on hold stays, and the notebook has its hour."
)
_STAYED = "kubectl get pods -n rack --field-selector spec.nodeName=node-1"
_CANCEL = "The firmware can wait after all. When the taint is removed, the remaining pods stay."
_CANCELLED = "kubectl get events -n rack --field-selector reason=EvictionCancelled --watch"

EVICTION = (
    Chapter(
        title=_RACK,
        steps=(
            Step(command="kubectl apply -f rack.yaml", says=("statefulset.apps/train created",)),
            Step(command="kubectl rollout status -n rack statefulset/train --timeout=4m", says=("complete",)),
            Step(command=_NOTEBOOK_RUNS, says=("notebook condition met",)),
            Step(command=_HOLD, says=("train-7 annotated",)),
            Step(command="kubectl apply -f spare-rack.yaml", says=("rack-2 created",)),
        ),
    ),
    Chapter(
        title=_FIRMWARE,
        steps=(
            Step(
                command="kubectl apply -f firmware.yaml",
                ripe="evicts 30 pods in 1 namespace",
                says=("evicts 30 pods in 1 namespace", "firmware created"),
            ),
            Step(command=_PROGRESS, until=_DONE),
            Step(command=_STAYED, says=("train-7 ", "notebook"), never=("train-6 ", "train-8 "), again=True),
        ),
        remark=_FIRMWARE_REMARK,
        asked=True,
    ),
    Chapter(
        title=_CANCEL,
        steps=(
            Step(command="kubectl delete -f firmware.yaml", says=("deleted",)),
            Step(command=_CANCELLED, until="pod/notebook"),
            Step(command=_STAYED, says=("train-7 ", "notebook")),
        ),
    ),
)
