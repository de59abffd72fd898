"""What several verbs use: flags, input files, output, verdicts."""
