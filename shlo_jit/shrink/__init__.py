"""Programs that something goes wrong with, made smaller as long as it still does (delta debugging on the IR)."""
