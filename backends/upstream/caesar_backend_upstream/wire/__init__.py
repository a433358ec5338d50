"""The upstream's wire, pure: requests as bodies, chunks and bodies as events."""
