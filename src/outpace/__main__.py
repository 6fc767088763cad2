"""``python -m outpace``."""

from outpace.cli import main

if __name__ == "__main__":
    main()
