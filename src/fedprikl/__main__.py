"""`python -m fedprikl`: the command line."""

from fedprikl.cli import main

if __name__ == "__main__":
    main()
