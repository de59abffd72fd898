"""`diff`: which objects of a cluster or a dump two policies judge differently.

`command` has the flags; `inputs` reads objects and policies, `changes` compares two verdicts, `report` shows
the result.
"""
