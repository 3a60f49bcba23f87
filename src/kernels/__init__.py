"""What can run, and how long it takes. Knows nothing of learning."""
