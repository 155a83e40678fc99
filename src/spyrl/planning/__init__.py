"""What a run will take, before any weight is loaded: memory, work, hours, and what will not fit."""
