# `millstream connect` with the libraries of all sources and sinks. Build the server's image first, as `millstream` (deploy/Dockerfile).
FROM millstream
USER root
COPY requirements/edges.txt /requirements/edges.txt
RUN pip install --no-cache-dir --require-hashes -r /requirements/edges.txt
USER millstream
HEALTHCHECK NONE
ENTRYPOINT ["millstream", "connect"]
