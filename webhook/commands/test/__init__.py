"""`test`: runs test suites of policies without a cluster.

`command` reads suites, `runner` runs their cases, each in a `trial`; `case_result` compares, `results` prints.
"""
