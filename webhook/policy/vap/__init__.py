"""A policy as ValidatingAdmissionPolicies: the part of it that the API server can enforce by itself.

In: a Policy. Out: manifests, and for each rule how much of it they cover. `export` goes through the rules, `cel` writes
a match as CEL, `objects` splits the result so that each object stays within CEL's cost limit. Start with `export`.
"""
