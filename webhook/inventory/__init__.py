"""What the cluster holds, and what a taint would do to it. No I/O, no clock, no versions of an API.

In: changed slices, rules, claims and pods, one at a time, through `state.Inventory.apply`. Out: the impact of a taint
(`impact`), the same pod by pod (`preview`), and which pods are due for eviction (`evictions`). `pools` has the devices
and how tolerations are read, `state` the claims on them; `targets` goes from a taint's devices to their users,
`hardware` to other parts of the same hardware, `gangs` from pods to others. Start with `state` and `impact`.
"""
