"""Taints carried out: who is evicted next, how gently, and what is told about it. Declares the port to the cluster."""
