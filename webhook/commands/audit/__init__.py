"""`audit`: claims and templates at rest, in a dump or a cluster, that the policy would refuse today.

`command` reads and reviews them, `from_cluster` lists them, `groups` counts the findings by rule and namespace.
"""
