"""An operation whose solvers fail in every way, to see what measuring makes of them."""
