"""Makes the training code of the demo model importable; it is not an installed package."""

import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "demo"
if str(DEMO) not in sys.path:
    sys.path.insert(0, str(DEMO))
