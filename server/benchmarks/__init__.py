"""Benchmarks of the engine alone, in this process: no socket, no threads."""
