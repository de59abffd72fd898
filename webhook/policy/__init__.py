"""What the operator of the cluster rejects: the policy document and its decisions. No HTTP, no logs."""
