"""What several verbs use: how a verb runs (`main`), flags, reviews of manifests and policies, and writing to stdout.

`manifest_review` reviews one manifest, `policy_files` one policy; both return a `files.report.Row`.
"""
