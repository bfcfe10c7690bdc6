"""`python -m covey`."""

from covey.cli.app import main

main()
