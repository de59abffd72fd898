"""`doctor`: checks whether an installation is healthy, and says how to fix what is not.

`probe` asks the cluster; `checks` turns its answers into checks, and prints them.
"""
