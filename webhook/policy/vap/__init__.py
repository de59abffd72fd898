"""A policy as ValidatingAdmissionPolicies: what of it the API server can enforce by itself. Start with export."""
