"""What an API server rejects, what the source documents reject beyond that, and the table of kinds.

In: decoded objects, new and old, and a release of Kubernetes. Out: field errors with the server's types, paths and
reasons. `kinds` maps each resource and version to its decoder and rules: start there. `documented` has the rules of the
source documents; `objects` and `strict` have what only files need. No cluster state, no policy, no clock.
"""
