"""`explain`: why a policy allows or refuses objects, what taints do to an object, and what a warning code means.

Files: `reviews`. Codes: `codes.md` has their texts, which `shared.codes` reads. Objects of a cluster: `values` has what
may be asked, what is known and the answer, and `text` the same for people.
"""
