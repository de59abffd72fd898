"""How fast, how often, and in which order: work queue, token bucket, throttle, backoff and time slice.

client-go has these in util/workqueue and util/flowcontrol. They know nothing of taints or clusters: clocks and sources
of randomness come in as arguments, keys are the caller's. Start with `workqueue`, which `eviction` runs on.
"""
