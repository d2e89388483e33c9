"""``python -m dranet``."""

from dranet.cli.main import main

if __name__ == "__main__":
    main()
