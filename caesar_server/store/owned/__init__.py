"""What accounts own besides jobs: files, collections and brainstorm sessions."""
