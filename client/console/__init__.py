"""The console: a page that shows a running server and steers it, and the process that serves the page.

Start reading in `serving`. `watching` asks the server once a second for all open pages of a role; `past` makes of what it says the figures
of now, the last fifteen minutes and the events; `app` has the routes and a page's connection; `files` the page itself, which `make console`
bundles from the folder `web`. What is to be computed for a page, `deciding` and `experiments` run as commands within bounds (`processes`).
Starlette and uvicorn are loaded with this room alone.
"""
