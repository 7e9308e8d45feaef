"""Words, figures and tables of text: the floor of every rendering."""
