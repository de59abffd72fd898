"""`preview`: which pods DeviceTaintRules, ResourceSlices and ResourceSlicePatches would evict, when and why."""
