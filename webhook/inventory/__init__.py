"""What the cluster holds, and what a taint would do to it. No I/O, no clock, no versions of an API.

In: changed slices, rules, claims and pods, one at a time, through `state.Inventory.apply`. Out: the impact of a taint
(`impact`), the same pod by pod (`preview`), and which pods are due for eviction (`evictions`). `pools` and `usage` are
the indexes; `fates` goes from devices to their users; `matching` has the semantics of tolerations and selectors.
Start with `state` and `impact`.
"""
