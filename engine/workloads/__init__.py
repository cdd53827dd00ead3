"""Rows for benchmarks. No other room imports it."""
