from __future__ import annotations

import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.rendered.env_values import read_values


def test_values_that_other_variables_decide_are_left_out() -> None:
    text = 'A="$B/c"\nexport D=\'$e\'\nF=plain # comment\nG=\n  H=1\n# I=1\nJ=a"b \\$c"\'d\'\\ e; f\nK="$(l)"\nM=`n`\n'
    assert read_values(text) == {"D": "$e", "F": "plain", "G": "", "J": "ab $cd e"}


def test_a_quote_that_does_not_end_is_told() -> None:
    with pytest.raises(ConfigError, match="NAME has a quote"):
        read_values("NAME='a\n")
