"""In what order the boxes inside a unit are walked. One walk a file."""
