"""The error of a defective compiler."""


class InternalError(RuntimeError):
    """The compiler produced something LLVM or the linker refuses: a defect of ours, never of the user's program."""
