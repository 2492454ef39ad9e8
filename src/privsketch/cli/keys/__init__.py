"""Keys and signatures from the shell: commands, options of others, and checks of what is loaded."""
