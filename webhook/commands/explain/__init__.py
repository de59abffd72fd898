"""`explain`: why a policy allows or refuses objects, what taints do to an object, and what a warning code means.

`command` has the flags, `run` finds out what is asked. Files: `reviews`. Codes: `codes.md` has their texts, which
`shared.codes` reads. Objects of a cluster: `subjects` are what may be asked about, `facts` what is known,
`explanations` the answer as values, made by `pods`, `claims`, `devices` and `rules`, and `text` the same for people.
"""
