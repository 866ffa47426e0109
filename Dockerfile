# ttpfl on CPUs, as a user without rights:
#   docker build -t ttpfl --build-arg TORCH_INDEX=ADDRESS .
#   docker run --rm -v "$PWD:/work" ttpfl demo
# ADDRESS is the index of torch's builds for CPUs, as pytorch.org names it under "Get started". Without it the
# image works as well, but has the libraries for GPUs in it, which are some gigabytes. The folder that is mounted
# must be writable for user 1000.
FROM python:3.11-slim

ARG TORCH_INDEX=
COPY constraints.txt /src/
# torch first and pinned, so that nothing else decides which build is taken.
RUN pip install --no-cache-dir -c /src/constraints.txt "$(grep '^torch==' /src/constraints.txt)" \
    ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}

COPY pyproject.toml README.md LICENSE /src/
COPY recipes /src/recipes
COPY src /src/src
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[data,flower]"

RUN useradd --create-home --uid 1000 ttpfl && install --directory --owner=ttpfl /work
USER ttpfl
WORKDIR /work
ENTRYPOINT ["ttpfl"]
CMD ["--help"]
