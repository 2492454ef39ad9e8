"""`python -m privsketch` is the command line."""

from privsketch.cli.main import main

if __name__ == "__main__":
    main(prog_name="privsketch")
