"""Benchmarks that go over TCP, and what all benchmarks share: timing, checking, figures."""
