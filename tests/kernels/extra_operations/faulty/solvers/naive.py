from foretune.kernels.faulty.solver import FaultySolver

SOLVER = FaultySolver("FaultyNaive")
