"""What the command does for authors of plugins: new ones, their own commands, reloading."""
