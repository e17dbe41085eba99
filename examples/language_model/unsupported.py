"""The error for models that this example cannot run. It is raised where a file is read, and where its text is."""


class UnsupportedModel(Exception):
    """The file has a model that this example cannot run."""
