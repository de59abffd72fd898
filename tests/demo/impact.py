"""The part of the story that needs devices and pods: what a rule would hit. Told with a control plane only."""

from __future__ import annotations

from tests.demo.scenes import Chapter, Step

_FLEET = (
    "Two nodes with four GPUs each, and six pods: four that train, two that serve and tolerate maintenance an hour."
)
_ACCIDENT = "A maintenance rule for one node, but without its selector: it selects every device in the cluster."
_HITS = (
    "spec.deviceSelector: Forbidden: hits 8 devices, 6 pods in 1 namespace: an empty selector is every device",
    'to go ahead, set annotation devicetaint.io/confirm-impact to "v1 devices=8 claims=6 pods=6 namespaces=1 of=',
)
_ACCIDENT_REMARK = (
    "Without the webhook, the API server accepts it, and all pods without a toleration are gone in a second."
)
_PREVIEWED = ("training/train-0", "no toleration", "training/serve-1", "after 1 h", "confirm-impact")
_CONFIRMED = "If you really mean all of them: the refusal contains a text that confirms this rule and this impact."
_CONFIRMED_REMARK = "The in-tree controller evicted the four at once; the two that serve have their hour."

# the tour has these steps as well
FLEET = (
    Step(command="kubectl apply -f fleet.yaml", says=("serve-1 created",), never=("Warning",)),
    Step(
        command="kubectl wait -n training --for=condition=PodScheduled pod --all --timeout=4m",
        says=("train-3 condition met",),
    ),
)
REFUSED = Step(
    command="kubectl apply -f all-gpus.yaml",
    code=1,
    ripe="hits 8 devices, 6 pods",
    says=_HITS,
    keeps=r'to "(v1 [^"]+)"',
)
CONFIRMED = (
    Step(command="""sed -i.bak 's/confirm-impact: ""/confirm-impact: "{kept}"/' all-gpus.yaml"""),
    Step(
        command="kubectl apply -f all-gpus.yaml",
        says=("evicts 6 pods in 1 namespace: 4 at once, 2 after 1 h", "all-gpus created"),
        next_second=True,  # the hour counts from timeAdded, which is in whole seconds
    ),
)

IMPACT = (
    Chapter(title=_FLEET, steps=FLEET),
    Chapter(
        title=_ACCIDENT,
        steps=(REFUSED,),
        remark=_ACCIDENT_REMARK,
        asked=True,
    ),
    Chapter(
        title="`preview` shows which pods would be evicted, when and why. It changes nothing.",
        steps=(
            Step(command="device-taint-webhook preview all-gpus.yaml --kubeconfig admin.kubeconfig", says=_PREVIEWED),
        ),
    ),
    Chapter(
        title=_CONFIRMED,
        steps=(
            *CONFIRMED,
            Step(command="kubectl wait -n training --for=delete pod -l app=train --timeout=4m"),
            Step(command="kubectl get pods -n training", says=("serve-0", "serve-1"), never=("train-",)),
            Step(command="kubectl delete -f all-gpus.yaml", says=("deleted",)),
        ),
        remark=_CONFIRMED_REMARK,
        asked=True,
    ),
)
