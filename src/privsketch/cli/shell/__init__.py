"""What all commands share towards a shell: answers for machines, failures and their exit codes."""
