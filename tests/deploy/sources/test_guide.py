from __future__ import annotations

import pytest

from qanat.deploy.sources.documents import read_document
from qanat.deploy.sources.launch import Document


def guide(text: str, path: str = "guide.txt") -> Document:
    return read_document(path, text)


PLAIN = """Qwen3.5 部署

1 简介

镜像：0.18.0.rc1，请使用 --max-model-len 调整长度。

2 启动

export HCCL_BUFFSIZE=1024
# 优化
export TASK_QUEUE_ENABLE=1

vllm serve /m \\
  --port 8000 \\
  --gpu-memory-utilization 0.95 从日志中可以看出--enforce-eager 较慢
启动后使用–async-scheduling，并 export A_B="1"。

3 其他

vllm serve /n
"""


def test_commands_are_found_between_text_without_fences() -> None:
    document = guide(PLAIN)
    assert document.kind == "guide"
    first, second = (one for one in document.launches if one.kind == "serve")
    assert (first.place.line, first.section) == (13, "2 启动")
    assert [(flag.name, flag.values[0].text) for flag in first.flags] == [
        ("--port", "8000"), ("--gpu-memory-utilization", "0.95"),
    ]  # fmt: skip
    assert {name: one.place.line for name, one in first.env.items()} == {
        "HCCL_BUFFSIZE": 9,
        "TASK_QUEUE_ENABLE": 11,
    }
    assert second.env == {} and second.block != first.block


def test_names_in_the_text_are_mentioned() -> None:
    document = guide(PLAIN)
    assert [(one.kind, one.value.text, one.place.line) for one in document.mentions] == [
        ("version", "0.18.0.rc1", 5), ("flag", "--max-model-len", 5), ("flag", "--enforce-eager", 15),
        ("flag", "–async-scheduling", 16), ("variable", "A_B", 16),
    ]  # fmt: skip
    (assignment,) = (one for one in document.assignments if one.origin == "prose")
    assert (assignment.name, assignment.value.text, assignment.place.line) == ("A_B", "1", 16)
    assert [(note.kind, note.place.line) for note in document.notes] == [("text-in-command", 15)]


def test_text_glued_to_a_value_is_cut_off() -> None:
    text = "参考配置：\nexport SIZE=4874368FlashComm通过通信\n"
    text += "docker run -it quay.io/ascend/vllm-ascend:v0.11.0rc3-a3由于默认\n"
    document = guide(text)
    assert document.assignments[0].value.text == "4874368"
    assert document.containers[0].image is not None
    assert document.containers[0].image.text == "quay.io/ascend/vllm-ascend:v0.11.0rc3-a3"


def test_json_in_the_text_is_a_fragment_with_places() -> None:
    text = (
        '优化项\n\n通过设置-compilation-config \'{"cudagraph_mode": "FULL"}\'，使用--max-num-seqs 16 即可。\n'
    )
    (fragment,) = guide(text).launches
    assert fragment.kind == "fragment"
    assert [(flag.name, flag.written) for flag in fragment.flags] == [
        ("-compilation-config", "-compilation-config"), ("--max-num-seqs", "--max-num-seqs"),
    ]  # fmt: skip
    node = fragment.json("-compilation-config")
    assert node is not None and node.value == {"cudagraph_mode": "FULL"}
    assert (node.members["cudagraph_mode"].place.line, node.members["cudagraph_mode"].place.column) == (3, 45)


MARKDOWN = """# Guide

Run this:

```bash
export A=1
```

then

```console
$ vllm serve m \\
>   --port 1
INFO ready --not-a-flag
(venv) $ export B=2
[root@node ~]# vllm serve n
```

## Other

```yaml
services:
  a:
    image: quay.io/ascend/vllm-ascend:v0.18.0
    command: vllm serve c --seed 1
```

```python
export = "vllm serve no"
```

~~~
docker exec box bash -c "vllm serve d"
~~~
"""


def test_fences_prompts_and_manifests_of_markdown() -> None:
    document = guide(MARKDOWN, "guide.md")
    launches = [one for one in document.launches if one.kind == "serve"]
    assert [(one.words[0].text, one.place.line, sorted(one.env)) for one in launches] == [
        ("m", 12, ["A"]), ("n", 16, ["A", "B"]), ("c", 24, []), ("d", 33, []),
    ]  # fmt: skip
    assert [flag.name for flag in launches[0].flags] == ["--port"]
    assert not any("not-a-flag" in one.value.text for one in document.mentions)


@pytest.mark.parametrize(
    "line",
    [
        "docker 镜像安装", "export the model to a folder", "set the flag", "source code is public", "cat and dog",
        "python 设置", "for example, use two nodes", "bf16: https://example.org/m", "w8a8 = quantised", "vllm 社区",
        "while two nodes talk to each other", "for details in the guide",
    ],
)  # fmt: skip
def test_sentences_are_not_commands(line: str) -> None:
    document = guide(f"介绍如下。\n\n{line}\n\n结束。\n")
    assert document.commands == () and document.assignments == ()


def test_a_quote_that_is_never_closed_does_not_swallow_the_guide() -> None:
    lines = ["介绍。", 'vllm serve m --x \'{"a": 1', *["正文一行。"] * 300, "vllm serve n", ""]
    document = guide("\n".join(lines))
    assert [one.words[0].text for one in document.launches if one.kind == "serve"][-1] == "n"


def test_templates_of_documentation_are_placeholders() -> None:
    text = "```bash\nexport IMAGE=quay.io/a/b:{{ version }}-a3\ndocker run -it quay.io/a/b:|version| bash\n"
    text += "docker run -it $IMAGE bash -c 'vllm serve m'\n```\n"
    document = guide(text, "a.md")
    images = [container.image for container in document.containers]
    assert [image.text for image in images if image] == [
        "quay.io/a/b:|version|",
        "quay.io/a/b:{{ version }}-a3",
    ]
    assert not any(image.is_known for image in images if image)
    assert document.launches[0].words[0].text == "m"


def test_fences_with_flags_alone_or_with_output() -> None:
    text = "```bash\n--tool-call-parser hermes \\\n--max-num-seqs 16 \\\n```\n\n"
    text += '```bash\n{"id": "cmpl"}\n|-- a.json\n```\n'
    document = guide(text, "a.md")
    assert [one.kind for one in document.launches] == ["fragment", "fragment"]
    assert [flag.name for one in document.launches for flag in one.flags] == [
        "--tool-call-parser",
        "--max-num-seqs",
    ]
    assert document.notes == ()
