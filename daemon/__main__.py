"""`python -m daemon` is the console script `pi-contextd`."""

from daemon.main import main

main()
