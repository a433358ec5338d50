"""The bytes of uploaded files, kept apart from what is known of them."""
