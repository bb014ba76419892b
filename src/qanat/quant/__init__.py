"""How weights are stored and multiplied: one method object per scheme, asked by the layers above."""
