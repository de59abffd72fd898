"""What an audit found as OpenReports (`openreports.io/v1alpha1`): findings, their objects, and what to write. Pure.

In: findings of one pass. Out: Report and ClusterReport objects of bounded size, each with a digest of its content, and
which of them differ from what is stored. Start with `objects`.
"""
