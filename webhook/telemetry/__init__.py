"""Metrics, and the format of the log.

In: calls such as `count_review`, and log records. Out: Prometheus exposition and log lines in JSON or text. It decides
nothing and asks for nothing, except where a gauge reads a function that it was given. `metrics` has the instruments as
tables, and that of `serve`, which shares a part with all processes; `reviews` counts the reviews themselves, `workers`
what `evict` and `patch` do, `logs` formats. Start with `metrics.MetricRow`.
"""
