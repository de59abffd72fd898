"""ResourceSlicePatches in a cluster: which DeviceTaintRules they need, and what has to be written for that. Pure."""
