"""The part of the story that needs devices and pods: what a rule would hit. Told with a control plane only."""

from __future__ import annotations

from tests.demo.scenes import Chapter, Step

_FLEET = (
    "Two nodes with four GPUs each, and six pods: four that train, two that serve and tolerate maintenance an hour."
)
_ACCIDENT = "A rule for one node in maintenance whose selector was forgotten: it is for every device of the cluster."
_HITS = (
    "spec.deviceSelector: Forbidden: hits 8 devices, 6 pods in 1 namespace: an empty selector is every device",
    'to go ahead, set annotation devicetaint.io/confirm-impact to "v1.',
)
_ACCIDENT_REMARK = "Without us the API server takes it, and within a second all pods without a toleration are gone."
_PREVIEWED = ("training/train-0", "no toleration", "training/serve-1", "after 1 h", "confirm-impact")
_CONFIRMED = "If all of them are meant: the refusal has a code, made for this rule and for what it hits now."
_SET_CODE = """sed -i.bak 's/confirm-impact: ""/confirm-impact: "{kept}"/' all-gpus.yaml"""
_CONFIRMED_REMARK = "Kubernetes' own controller evicted the four at once; the two that serve have their hour."
IMPACT = (
    Chapter(
        title=_FLEET,
        steps=(
            Step(command="kubectl apply -f fleet.yaml", says=("serve-1 created",), never=("Warning",)),
            Step(
                command="kubectl wait -n training --for=condition=PodScheduled pod --all --timeout=4m",
                says=("train-3 condition met",),
            ),
        ),
    ),
    Chapter(
        title=_ACCIDENT,
        steps=(
            Step(
                command="kubectl apply -f all-gpus.yaml",
                code=1,
                ripe="hits 8 devices, 6 pods",
                says=_HITS,
                keeps=r'to "(v1\.[^"]+)"',
            ),
        ),
        remark=_ACCIDENT_REMARK,
        asked=True,
    ),
    Chapter(
        title="`preview` shows who would go, when and why. It changes nothing.",
        steps=(
            Step(command="device-taint-webhook preview all-gpus.yaml --kubeconfig admin.kubeconfig", says=_PREVIEWED),
        ),
    ),
    Chapter(
        title=_CONFIRMED,
        steps=(
            Step(command=_SET_CODE),
            Step(
                command="kubectl apply -f all-gpus.yaml",
                says=("evicts 6 pods in 1 namespace: 4 at once, 2 after 1 h", "all-gpus created"),
            ),
            Step(command="kubectl wait -n training --for=delete pod -l app=train --timeout=4m"),
            Step(command="kubectl get pods -n training", says=("serve-0", "serve-1"), never=("train-",)),
            Step(command="kubectl delete -f all-gpus.yaml", says=("deleted",)),
        ),
        remark=_CONFIRMED_REMARK,
        asked=True,
    ),
)
