"""Programs with unknown dimensions, made static for the shapes of their arguments."""
