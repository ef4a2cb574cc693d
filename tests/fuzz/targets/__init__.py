"""What is fuzzed: a module for each subject, whose first lines state what must hold."""
