from __future__ import annotations

from tests.support.providers import reference_kernels as reference_kernels
