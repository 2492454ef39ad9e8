"""Our methods, baselines and installed peers side by side: quality, time and memory."""
