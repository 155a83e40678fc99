"""The commands that evaluate, one file a command: ``add`` declares its arguments, ``run`` runs it."""
