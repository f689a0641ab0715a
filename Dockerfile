# One image for the three roles: towline api, towline worker control, towline worker agent.
FROM python:3.13.9-slim-bookworm
WORKDIR /opt/towline
COPY requirements.server.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.server.lock
COPY pyproject.toml README.md alembic.ini ./
COPY activities activities
COPY api api
COPY migrations migrations
COPY towline towline
COPY workers workers
COPY workflows workflows
# In place, so that the migrations are found beside the packages.
RUN pip install --no-cache-dir --no-deps --editable .
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["towline"]
