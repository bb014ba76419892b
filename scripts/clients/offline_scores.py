"""Scores the small tasks with the LLM class, without any server: prints them as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import sums

from qanat import LLM, SamplingParams
from qanat.engine.tokenizer import Tokenizer


def main() -> int:
    """Prints accuracy of the choices, the sum of log-probabilities of each, and the share of right replies."""
    with LLM(sys.argv[1]) as llm:
        tokenizer = Tokenizer.from_folder(Path(sys.argv[1]), llm.config.model)
        scores = []
        num_right = 0
        for document in sums.choices():
            context = tokenizer.encode(document["question"])
            texts = [f"{document['question']} {choice}" for choice in document["choices"]]
            prompts = [tokenizer.encode(text) for text in texts]
            results = llm.generate(prompts, SamplingParams(max_tokens=0, prompt_logprobs=0))
            totals = []
            for result in results:
                entries = (result.prompt_logprobs or [])[len(context) :]
                totals.append(sum(entry.chosen.logprob for entry in entries if entry is not None))
            scores.append(totals)
            num_right += totals.index(max(totals)) == document["answer"]
        conversations = [[{"role": "user", "content": chat["question"]}] for chat in sums.chats()]
        replies = llm.chat(conversations, SamplingParams(max_tokens=256, temperature=0))
        texts = [reply.outputs[0].text.rpartition("</think>")[2].strip("\n") for reply in replies]
    json.dump({"accuracy": num_right / len(scores), "scores": scores, "replies": texts}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
