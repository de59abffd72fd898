"""`status`: what is being evicted from tainted devices, and what each pod waits for.

`run` reads a dump or a cluster (`snapshot`) into `objects`; `views` computes the state of each pod by the worker's
own rules, and what a pod that is due waits for; `report` counts them, and has them as values and as tables.
"""
