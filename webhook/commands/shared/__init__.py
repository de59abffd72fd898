"""What several verbs use: how a verb runs (`main`), flags, reviews of manifests and policies, and writing to stdout.

`snapshot` reads a cluster, `output` writes reports, `codes` has the texts of warning codes and chooses among them.
`manifest_review` reviews one manifest, `policy_files` one policy; both return a `files.report.Row`.
"""
