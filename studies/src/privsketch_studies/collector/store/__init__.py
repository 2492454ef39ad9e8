"""Where a collector keeps everything: tables, the engine below them, and their migrations."""
