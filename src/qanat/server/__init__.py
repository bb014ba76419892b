"""The OpenAI API over `AsyncEngine`: requests in, one event stream inside, JSON or server-sent events out."""
