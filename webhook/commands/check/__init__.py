"""`check`: reviews manifests in files as the webhook would.

`command` has the flags and the run; the review itself is `shared.manifest_review`. `from_cluster` reads a policy.
"""
