"""Features of problems, one file for each operation."""
