"""What is settled about the reuse of prefixes and where they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.config.engine_config import EngineConfig
from qanat.config.model_config import ModelConfig
from qanat.config.prefix_cache import PrefixCacheSettings, prefix_cache_settings
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import TINY_CONFIG

MODEL = ModelConfig.from_dict(TINY_CONFIG)


def settle(**wishes: object) -> tuple[PrefixCacheSettings | None, list[Decision]]:
    said: list[Decision] = []
    return prefix_cache_settings(EngineConfig(**wishes), MODEL, said), said  # type: ignore[arg-type]


def test_a_folder_is_used_or_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "prefixes"
    settings, said = settle(prefix_cache_dir=str(folder), prefix_cache_dir_bytes=2**30)
    assert settings is not None
    assert (settings.folder, settings.folder_bytes, said) == (str(folder), 2**30, [])
    assert not folder.exists(), "a plan leaves nothing behind"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o722])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 700"):
        settle(prefix_cache_dir=str(tmp_path))


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is no folder"):
        settle(prefix_cache_dir=str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="is empty"):
        settle(prefix_cache_dir="")


def test_without_reuse_or_folder_the_other_flags_say_that_they_do_nothing(tmp_path: Path) -> None:
    settings, said = settle(prefix_cache_dir=str(tmp_path), enable_prefix_caching=False)
    assert settings is None
    assert [(one.field, one.got) for one in said] == [("--prefix-cache-dir", "no effect")]
    settings, said = settle(prefix_cache_dir_bytes=5)
    assert settings is not None
    assert not settings.folder
    assert [(one.field, one.got) for one in said] == [("--prefix-cache-dir-bytes", "no effect")]
