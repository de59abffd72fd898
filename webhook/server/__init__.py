"""The HTTP side of admission: sockets, limits, deadlines, status codes, probes and metrics endpoints.

In: HTTP requests. Out: HTTP responses, one log line and a few metrics for each review. What a review means is decided
by `admission`, from the `AdmissionContext` that `state` puts together. `listener` knows connections, `bodies` bounds
what requests cost. Start with `http.Reviews`.
"""
