"""The report linter: what a finished page may not say, checked on its Markdown. Start with `check`."""
