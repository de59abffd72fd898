"""`test`: runs test suites of policies without a cluster.

`command` reads suites, `runner` runs their cases, each in a `Trial`, and `results` prints what came of them.
"""
