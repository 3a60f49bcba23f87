"""Learning which of foretune's own kernels wins: their candidates, models and baselines."""
