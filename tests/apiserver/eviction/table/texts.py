"""What conditions say (E-39 to E-42)."""

from typing import Final

ONE_GONE: Final = "False Completed: 1 pod evicted since starting the controller."
TWO_GONE: Final = "False Completed: 2 pods evicted since starting the controller."
ONE_PENDING: Final = "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace."
ONE_PENDING_ONE_GONE: Final = f"{ONE_PENDING} 1 pod evicted since starting the controller."
NOT_STARTED: Final = "False NotStarted"
THREE_GONE: Final = "False Completed: 3 pods evicted since starting the controller."
OTHER: Final = "False OtherEffect: Eviction only happens for the NoExecute effect."


def no_effect(published: str, allocated: str, pods: str, namespaces: str, gone: str = "") -> str:
    """E-40: each with its noun, and E-42: `gone` pods."""
    text = (
        f"False NoEffect: {published} selected. {allocated} selected. {pods} would be evicted in {namespaces} if the "
        "effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an "
        "update."
    )
    return f"{text} {gone} evicted since starting the controller." if gone else text
