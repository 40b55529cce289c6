"""Tasks whose samples or answers are text."""
