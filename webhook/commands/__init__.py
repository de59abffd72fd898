"""One verb a module. Each has `run(arguments) -> exit code`: 0 fine, 1 findings, 2 usage or unreadable input."""
