"""What commands print: tables, sentences, JSON, safely on a terminal."""
