"""Settings: wishes come in as `EngineConfig`, one frozen `ResolvedConfig` comes out, with a decision per change."""
