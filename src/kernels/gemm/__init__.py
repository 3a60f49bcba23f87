"""Matrix multiplication, C = alpha * A * B + beta * C, in batches."""
