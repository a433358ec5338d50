"""llama.cpp as the backend uses it: one set of weights, several contexts, our own sampling."""
