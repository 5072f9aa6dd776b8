"""``python -m examples.physics``."""

from examples.physics.cli import main

if __name__ == "__main__":
    main()
