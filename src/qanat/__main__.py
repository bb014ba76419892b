"""`python -m qanat` is the command `qanat`."""

import sys

from qanat.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
