"""Which periodic queries are evaluated together."""
