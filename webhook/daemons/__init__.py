"""The long-running processes: `serve` answers admission reviews, `evict` empties tainted devices, `patch` writes rules.

Each has one composition root of its name, which turns settings into parts and parts into stages for `runtime`.
`process` is what they have in common; `policy_loader` writes the policy store that all others read.
In: command-line arguments and the environment. Out: an exit code. Start with `serve.Webhook.stages`.
"""
