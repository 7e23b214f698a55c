"""`python -m disqued`: what the script `disqued` is, where that is not on the path."""

from disqued.cli import main

if __name__ == "__main__":
    main()
