"""The error of a defective compiler."""


class InternalError(RuntimeError):
    """The compiler failed on a program it should compile or refuse: a defect of ours, never of the user's program."""
