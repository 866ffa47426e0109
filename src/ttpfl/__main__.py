"""`python -m ttpfl` is the command `ttpfl`."""

from ttpfl.cli import main

if __name__ == "__main__":
    main()
