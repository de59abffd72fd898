"""Metrics, and the format of the log.

In: calls such as `count_review`, and log records. Out: Prometheus exposition and log lines in JSON or text. It decides
nothing and asks for nothing, except where a gauge reads a function that it was given. `metrics` has what both
processes share, `reviews` and `policy` what `serve` counts, `eviction` and `audit` what `evict` counts; `repeats`
limits how often a lasting fault is logged. Start with `metrics.Metrics`.
"""
