"""Import of JSON, and its values."""
