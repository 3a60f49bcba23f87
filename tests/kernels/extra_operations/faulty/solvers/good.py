from tests.kernels.extra_operations.faulty.solver import FaultySolver

SOLVER = FaultySolver("FaultyGood", (16, 32, 64, 128, 256))
