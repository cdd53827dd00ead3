"""HTTP for those who have no client of ours: rows in, results out, statements, and what there is.

`app` has the routes, `publishing` the rows of a request, `results` a query's results as a response, `connections` the gateway's own
connections to the server, `listener` the sockets. Litestar and uvicorn are loaded with this room alone.
"""
