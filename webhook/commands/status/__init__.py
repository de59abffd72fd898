"""`status`: what is being evicted from tainted devices, and what each pod waits for.

`from_cluster` or a dump fills `objects`; `views` computes the state of each pod by the worker's own rules (`waits` says
what a pod that is due waits for), `report` has it as values, `text` as tables; `watching` repeats it.
"""
