from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from qanat.kernels.native import module, products
from qanat.kernels.native.packed import pack

IN_A_COPY = """
import os, torch
from qanat.kernels.native import module, products
from qanat.kernels.native.packed import pack

module.configure(3)
weight, x = pack(torch.ones(4096, 64)), torch.ones(1, 64)
expected = products.linear(x, weight)
child = os.fork()
module.count_pool_waits(True)
same = torch.equal(products.linear(x, weight), expected)
num_shared = sum(waits.num_shared for waits in module.pool_waits().values())
same = same and num_shared == (0 if child == 0 else 1)  # nobody to share with in a copy
if child == 0:
    module.configure(2)
    os._exit(0 if same and torch.equal(products.linear(x, weight), expected) else 1)
_, status = os.waitpid(child, 0)
print("copy", os.waitstatus_to_exitcode(status), same)
"""


TOO_MANY_THREADS = """
import resource, torch
from qanat.core.errors import ConfigError
from qanat.kernels.native import module, products
from qanat.kernels.native.packed import pack

module.configure(2)
weight, x = pack(torch.ones(4096, 64)), torch.ones(1, 64)
expected = products.linear(x, weight)
with open("/proc/self/statm") as file:
    size_bytes = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size_bytes + 2**28, resource.RLIM_INFINITY))
try:
    module.configure(1024)
except ConfigError as error:
    print("--num-threads 1024" in error.message)
print(module.native().num_threads(), torch.equal(products.linear(x, weight), expected))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads its size from /proc")
def test_threads_that_the_system_refuses_are_an_error_and_the_old_ones_go_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOO_MANY_THREADS], capture_output=True, text=True, timeout=240
    )
    assert done.stdout.split() == ["True", "2", "True"], done.stderr


def test_waits_are_counted_by_op_only_while_asked_for() -> None:
    module.configure(2)
    weight, x = pack(torch.ones(4096, 64)), torch.ones(1, 64)
    module.count_pool_waits(True)
    for _ in range(5):
        products.linear(x, weight)
    module.count_pool_waits(False)
    products.linear(x, weight)
    waits = {name: waits for name, waits in module.pool_waits().items() if waits.num_shared}
    ((name, product),) = waits.items()
    assert "linear" in name and product.num_jobs >= product.num_shared == 5
    assert 0 <= product.wait_s <= product.elapsed_s and 0 < product.busy_s <= 2 * product.elapsed_s


def test_an_idle_pool_uses_no_processor() -> None:
    module.configure(8)
    weight, x = pack(torch.ones(4096, 512)), torch.ones(1, 512)
    products.linear(x, weight)
    deadline_s = time.monotonic() + 60
    while share_of_a_processor(0.1) >= 0.05:  # threads of other tests may still have something to do
        assert time.monotonic() < deadline_s


def share_of_a_processor(span_s: float) -> float:
    """What all threads of this process take of one processor in the time to come."""
    began_s, before_s = time.monotonic(), time.process_time()
    time.sleep(span_s)
    return (time.process_time() - before_s) / (time.monotonic() - began_s)


def test_a_copy_of_the_process_computes_and_starts_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_COPY], capture_output=True, text=True, timeout=240)
    assert done.stdout.split() == ["copy", "0", "True"], done.stderr
