"""`taint`: taints devices by writing DeviceTaintRules, as `kubectl taint` taints nodes."""
