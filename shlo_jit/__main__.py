"""`python -m shlo_jit`: the command `shlo-jit`."""

from shlo_jit.cli import main

if __name__ == "__main__":
    main()
