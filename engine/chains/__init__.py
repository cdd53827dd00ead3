"""Chains of stateless operators run as one: written down as a function of rows or of columns."""
