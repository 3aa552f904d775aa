"""Every step, formats layer: the shapes of files and JSON output, and their conversion to domain values. Never a decision."""
