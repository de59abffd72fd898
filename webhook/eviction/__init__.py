"""Acts on device taints: decides which pod is evicted next and how gently, and reports progress on its rule.

In: changes of the inventory (`Controller.observe`) and the ports that `ports` and `dependencies` declare: the
cluster's writer, budgets, holds, clocks, profiles. Out: requests to evict and delete, conditions of rules, Events and
metrics. No module here knows HTTP or the client; `conditions`, `step`, `plans`, `rate_limiter` and
`ready_queue` do no I/O and read no clock. Start with `step` (what to do about one pod), then
`core` (what waits where) and `controller`; docs/development/architecture.md follows one taint through all of them.
"""
