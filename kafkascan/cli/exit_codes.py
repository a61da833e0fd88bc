"""Exit codes of all commands."""

EXIT_CLEAN, EXIT_FINDINGS, EXIT_USAGE, EXIT_UNREADABLE = 0, 1, 2, 3
# As a shell reports a process that SIGINT ended.
EXIT_INTERRUPTED = 130
