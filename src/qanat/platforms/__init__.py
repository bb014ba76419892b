"""Device families: what a machine has and can do. Nothing above asks which platform it runs on."""
