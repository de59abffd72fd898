"""Admission webhook and eviction worker that make Kubernetes device taints safe."""

__version__ = "0.1.0"
