"""What an API server rejects, what the source documents reject beyond that, and the table of kinds.

Rules are pure functions that yield field errors. They know nothing of cluster state, policy or clocks.
"""
