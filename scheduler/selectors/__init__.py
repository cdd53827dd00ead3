"""How the best unit is found. One way a file; none of them ranks, waits or locks."""
