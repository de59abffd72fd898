"""The chapters of a ResourceSlicePatch, which taints devices by class and CEL. They need a control plane."""

from __future__ import annotations

from tests.demo.scenes import Chapter, Step

_BUG = (
    "Firmware before 1.1.0 corrupts the memory of large GPUs. A DeviceTaintRule selects devices by name only. A "
    "ResourceSlicePatch selects them by device class and CEL."
)
_FOUND = ("3 in 2 pools", "evicted   3 pods", "3 DeviceTaintRules", "cards-1/gpu-0", "cards-2/gpu-0", "cards-2/gpu-1")
_NOT_FOUND = ("cards-1/gpu-1", "gpu-2")
_BUG_REMARK = "`preview` changes nothing. It prints each device before and after, and each pod that would be evicted."
_APPLIED = (
    "The webhook answers a dry run with what the patch would hit. Once the patch is stored, our controller makes "
    "DeviceTaintRules of it, which go when the patch is deleted."
)
_HITS = "selects 3 devices in 2 pools; evicts 3 pods in 1 namespace"
_COUNTS = "old-firmware   large                       3          3 "
_RULES = "kubectl get devicetaintrules -l devicetaint.io/patch"
_SELECTORS = f"{_RULES} -o custom-columns=POOL:..pool,DEVICE:..device,EFFECT:..effect"
_SELECTED = ("cards-1   gpu-0    NoExecute", "cards-2   gpu-0    NoExecute", "cards-2   gpu-1    NoExecute")
_READY = "kubectl get statefulset -n ml"
_PODS = "kubectl get statefulset,pods -n ml"
_TESTED = (
    "kubectl wait -n ml resourceclaim/memory-test --for=jsonpath='{.status.allocation}' --timeout=4m "
    "-o jsonpath='{..pool}/{..device}'"
)
_WITH_OLD_FIRMWARE = r"^cards-(1/gpu-0|2/gpu-[01])$"
_APPLIED_REMARK = (
    "The scheduler kept the evicted pods off the three GPUs. The memory test tolerates the taint and got one of them. "
    "All replicas run again when the patch is gone."
)

PATCHES = (
    Chapter(
        title=_BUG,
        steps=(
            Step(command="kubectl apply -f cards.yaml", says=("statefulset.apps/chat created",), never=("Warning",)),
            Step(command=_READY, says=("4/4",), again=True),
            Step(command="grep -A 3 filter: old-firmware.yaml", says=("deviceClassName: large", "1.1.0")),
            Step(
                command="device-taint-webhook preview old-firmware.yaml --kubeconfig admin.kubeconfig",
                says=_FOUND,
                never=_NOT_FOUND,
            ),
        ),
        remark=_BUG_REMARK,
    ),
    Chapter(
        title=_APPLIED,
        steps=(
            Step(
                command="kubectl apply -f old-firmware.yaml --dry-run=server",
                says=(_HITS, "old-firmware created (server dry run)"),
                again=True,
            ),
            Step(command="kubectl apply -f old-firmware.yaml", says=(_HITS, "old-firmware created")),
            Step(command="kubectl get rsp", says=(_COUNTS,), again=True),
            Step(command=_SELECTORS, says=_SELECTED),
            Step(command=_PODS, says=("1/4", "Pending", "Running"), never=("Terminating",), again=True),
            Step(command="kubectl apply -f memory-test.yaml", says=("memory-test created",), never=("Warning",)),
            Step(command=_TESTED, new=_WITH_OLD_FIRMWARE),
            Step(command="kubectl delete -f memory-test.yaml -f old-firmware.yaml", says=('old-firmware" deleted',)),
            Step(command=_RULES, says=("No resources found",), again=True),
            Step(command=_READY, says=("4/4",), again=True),
        ),
        remark=_APPLIED_REMARK,
        asked=True,
    ),
)
