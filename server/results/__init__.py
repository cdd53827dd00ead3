"""Results on their way out: kept in order, encoded once, handed to each subscriber at its own speed."""
