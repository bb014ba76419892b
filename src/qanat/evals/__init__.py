"""Right and wrong answers of any server of the OpenAI API: tasks, questions, verdicts, comparisons."""
