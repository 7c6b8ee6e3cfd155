"""Quality beside speed: the same arms are asked coding tasks, and their saved answers are scored offline."""
