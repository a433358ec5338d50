"""From a decision to the text of each choice, its pieces and when each of them is due."""
