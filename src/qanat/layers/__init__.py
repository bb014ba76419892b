"""Layers: modules that hold parameters and call ops. `forward(x, context)`; no globals, no platform branches."""
