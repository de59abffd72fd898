"""Metrics, and the format of the log.

In: calls such as `count_review`, and log records. Out: Prometheus exposition and log lines in JSON or text. It decides
nothing and asks for nothing, except where a gauge reads a function that it was given. `metrics` has the instruments as
tables, and that of `serve`, of which all processes share a part; `reviews` counts the reviews themselves, `workers`
what `evict` and `patch` do; `repeats` limits how often a lasting fault is logged. Start with `metrics.MetricRow`.
"""
