"""From the bytes of other tools' files to one `Sheet`: documents, what was taken out of them, and arms and rounds."""
