"""``python -m caesar_server`` is ``caesar-server``."""

from caesar_server.cli import main

if __name__ == "__main__":
    main(prog_name="caesar-server")
