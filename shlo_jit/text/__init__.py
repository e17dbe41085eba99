"""Parser and printer of textual programs."""
