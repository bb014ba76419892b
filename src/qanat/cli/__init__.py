"""The command line: one file per command. Importing it loads no torch; each command imports what it needs."""
