"""Approximate aggregates: small, mergeable, deterministic summaries of many values."""
