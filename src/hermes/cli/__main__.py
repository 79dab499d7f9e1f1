"""`python -m hermes.cli` is `hermes`."""

from hermes.cli.main import main

main()
