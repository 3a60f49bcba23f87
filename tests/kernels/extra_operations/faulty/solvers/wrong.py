from tests.kernels.extra_operations.faulty.solver import FaultySolver

SOLVER = FaultySolver("FaultyWrong")
