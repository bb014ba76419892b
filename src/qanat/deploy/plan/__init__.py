"""From what a user has and wants to a deployment, each choice with its reason."""
