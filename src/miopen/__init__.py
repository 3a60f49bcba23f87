"""AMD's MIOpen: its database formats, command lines, baselines, and the model learnt from them."""
