"""`list`: tainted devices, with every taint of slices and rules on them, and the pods that it concerns.

`taints` works out the rows, `show` prints them.
"""
