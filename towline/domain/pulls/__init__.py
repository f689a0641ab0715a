"""The pure pull: from registry facts and the engine's lines to exact progress, an honest ETA and a verdict."""
