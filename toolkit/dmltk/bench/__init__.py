"""How an existing embedding model breaks: suites of attacks, worst cases, sanity checks."""
