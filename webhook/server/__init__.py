"""The HTTP side of admission: sockets, limits, deadlines, status codes, probes and metrics endpoints.

In: HTTP requests. Out: HTTP responses, one log line and a few metrics for each review. What a review means is decided
by `admission`, from the `AdmissionContext` that `review_state` puts together; what earlier reviews leave behind for
later ones is in `assumed_rules`. `listener` knows connections, `bodies` and `lane` bound what
requests cost. Start with `http.Reviews`.
"""
