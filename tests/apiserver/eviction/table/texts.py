"""What conditions say (E-39 to E-42)."""

from typing import Final

ONE_GONE: Final = "False Completed: 1 pod evicted since starting the controller."
TWO_GONE: Final = "False Completed: 2 pods evicted since starting the controller."
ONE_PENDING: Final = "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace."
ONE_PENDING_ONE_GONE: Final = f"{ONE_PENDING} 1 pod evicted since starting the controller."
NOT_STARTED: Final = "False NotStarted"
OTHER: Final = "False OtherEffect: Eviction only happens for the NoExecute effect."
