"""ResourceSlicePatches in a cluster: what they select and mean, and what has to be written for that. No I/O, no clock.

From scratch: `patching` has the effective devices, `expansion` their DeviceTaintRules; for one patch under review
`patch_reach`. Change by change: `index`, `book` and `slice_patches`. Start with `patching`.
"""
