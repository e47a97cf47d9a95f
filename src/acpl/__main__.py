"""``python -m acpl``: the shell's command, as torchrun starts it."""

from acpl.cli import main

if __name__ == "__main__":
    main()
