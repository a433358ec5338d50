"""What a server in mock mode does besides: scopes, faults, journal and their control."""
