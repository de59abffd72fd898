"""Acts on device taints: plans which pods go next and how gently, evicts them, and reports on the rules.

In: changes of the inventory (`Controller.observe`) and what `ports` declares: the cluster's writer, budgets, holds,
clocks, profiles. Out: requests to evict and delete, conditions of rules, Events and metrics. No module here knows HTTP
or the client; `plan`, `room`, `line` and `conditions` do no I/O and read no clock. Start with `plan` (who may go), then
`room` and `line` (who finds room), `sender` (the check as a request is written), and `controller`;
docs/development/architecture.md follows one taint through them.
"""
