"""How outpace gets into a target's process: scripts, modules and commands."""
