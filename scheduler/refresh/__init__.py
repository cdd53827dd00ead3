"""Which polled relation is read next."""
