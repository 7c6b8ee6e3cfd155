"""One file per switch; `switchboard.registry` finds them by file name."""
