"""Tree ensembles trained by LightGBM, answered for one row in microseconds without LightGBM."""

from foretune.predictor.forest.model import Forest, PackedForests, load_forests, save_forests

__all__ = ["Forest", "PackedForests", "load_forests", "save_forests"]
