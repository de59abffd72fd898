"""The two long-running processes: `serve` answers admission reviews, `evict` empties tainted devices.

Each has one composition root, `serve.py` and `evict.py`, which turns settings into parts and parts into stages for
`runtime`. `wiring` connects parts to files or to the cluster; `policy_loader` writes the policy store that all others
read; `process` is what all of them do at their start.
In: command-line arguments and the environment. Out: an exit code. Start with `serve.build` or `evict.Worker.stages`.
"""
