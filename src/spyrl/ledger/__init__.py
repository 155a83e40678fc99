"""The ledger's tiny model: its tokenizer, its bad habits and the warm start that gives it both."""
