# ttpfl on CPUs, as an unprivileged user:
#   docker build -t ttpfl .
#   docker run --rm -v "$PWD:/work" ttpfl demo
# torch comes from PyTorch's CPU index. With --build-arg TORCH_INDEX= it comes from pip's default index, and the image
# includes gigabytes of CUDA libraries. The mounted folder must be writable for user 1000.
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt /src/
COPY requirements /src/requirements
# Every file is verified by its hash, and only listed packages are installed. The last step adds the libraries of torch's
# GPU build; it is a no-op for the CPU build.
RUN pip install --no-cache-dir --require-hashes --no-deps -r /src/requirements/run.lock \
    && pip install --no-cache-dir --require-hashes --no-deps ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    -r "/src/requirements/torch${TORCH_INDEX:+-cpu}.lock" \
    && pip install --no-cache-dir -c /src/constraints.txt "$(grep '^torch==' /src/constraints.txt)"

COPY pyproject.toml README.md LICENSE /src/
COPY recipes /src/recipes
COPY src /src/src
RUN pip install --no-cache-dir --no-deps --no-build-isolation /src

RUN useradd --create-home --uid 1000 ttpfl && install --directory --owner=ttpfl /work
USER ttpfl
WORKDIR /work
ENTRYPOINT ["ttpfl"]
CMD ["--help"]
