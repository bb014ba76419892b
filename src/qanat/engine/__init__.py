"""From admitted requests to events: the core loop, its process, and the front end that turns tokens into text."""
