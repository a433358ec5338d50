"""Caesar's agents family: the same research in shorter answers, for programs that pay by token."""
