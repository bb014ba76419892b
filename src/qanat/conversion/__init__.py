"""Writing checkpoints: from a plain one to a quantised one, tensor by tensor, in bounded memory."""
