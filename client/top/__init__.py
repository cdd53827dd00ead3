"""`millstream top`: what the server does, as a screen and as plain text.

Start reading in `model` (what is looked at, and the figures made of two looks), then `plain` and `screen`. Only `screen` needs Textual.
"""
