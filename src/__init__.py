"""foretune picks GPU kernels without searching."""
