"""What is measured, foreseen and corrected while queries run, and what metrics say of it."""
