"""`preview`: which pods DeviceTaintRules and ResourceSlices would evict, when and why.

`command` computes previews from a dump or from `from_cluster`; `report` has them as values, `text` and `notes` as text.
"""
