"""What runs, and what lies between: sources, logs and their readers, running operators, and how far an order of rows is known."""
