"""What lies on disk: manifests read with their positions, findings printed. Decisions are made elsewhere."""
