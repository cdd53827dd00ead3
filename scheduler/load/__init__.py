"""Load management: how much may come in, how much each class gets."""
