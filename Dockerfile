# ttpfl on CPUs, as a user without rights:
#   docker build -t ttpfl .
#   docker run --rm -v "$PWD:/work" ttpfl demo
# torch comes from PyTorch's index of builds for CPUs. With --build-arg TORCH_INDEX= it comes from pip's usual index,
# and the libraries of CUDA are in the image, which are gigabytes. The folder that is mounted must be writable for
# user 1000.
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
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
