# ttpfl on CPUs, as a user without rights:
#   docker build -t ttpfl .
#   docker run --rm -v "$PWD:/work" ttpfl demo
# torch comes from PyTorch's index of builds for CPUs. With --build-arg TORCH_INDEX= it comes from pip's usual index,
# and the libraries of CUDA are in the image, which are gigabytes. The folder that is mounted must be writable for
# user 1000.
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt /src/
COPY requirements /src/requirements
# Every file is compared with its hash, and nothing but what is listed is taken. The last step adds what torch's build
# for GPUs needs, and nothing for the build for CPUs.
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
