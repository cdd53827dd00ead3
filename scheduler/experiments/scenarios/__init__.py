"""One experiment a file."""
