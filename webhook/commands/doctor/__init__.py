"""`doctor`: checks whether an installation is healthy, and says how to fix what is not.

`probe_cluster` asks the cluster; `checks` and `callers` turn its answers into checks, which `command` prints.
"""
