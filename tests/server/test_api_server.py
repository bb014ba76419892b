from __future__ import annotations

import sys

import pytest

from qanat.entrypoints.openai import api_server


def test_vllms_module_path_is_the_serve_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["api_server", "--help"])
    assert api_server.main() == 0
    assert "--served-model-name" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["api_server", "--no-such-flag"])
    assert api_server.main() != 0
