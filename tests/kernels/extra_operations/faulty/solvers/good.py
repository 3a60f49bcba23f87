from tests.kernels.extra_operations.faulty.solver import FaultySolver

SOLVER = FaultySolver("FaultyGood", (64, 128, 256, 512, 1024))
