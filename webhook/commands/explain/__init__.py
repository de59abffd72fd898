"""`explain`: why a policy allows or refuses objects in files, rule by rule, and what a warning code means.

`command` runs it; `codes.md` has the texts of the codes, which `shared.codes` reads.
"""
