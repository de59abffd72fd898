"""The check verb: manifests in files, judged as the webhook would."""
