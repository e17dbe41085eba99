"""Text to `Module` and back."""
