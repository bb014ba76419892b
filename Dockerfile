# Qanat on the CPU with its demo model.
#
#   docker build -t qanat .
#   docker run --rm -p 8000:8000 qanat
#   docker run --rm -p 8000:8000 -v ./Qwen3-0.6B:/model:ro qanat /model
#
# TORCH_INDEX is an index of CPU builds of torch: without one pip would fetch gigabytes of CUDA libraries, and
# scripts/setup refuses to. PyTorch's installation page shows its address under: Linux, Pip, Python, CPU.
FROM python:3.11-slim AS build
ARG TORCH_INDEX=""
ENV QANAT_VENV=/opt/qanat/venv PIP_NO_CACHE_DIR=1 PIP_EXTRA_INDEX_URL=${TORCH_INDEX}
WORKDIR /opt/qanat/source
# The native kernels need a compiler here and none in the second stage.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/setup

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 qanat
COPY --from=build --chown=root:root /opt/qanat /opt/qanat
ENV PATH=/opt/qanat/venv/bin:${PATH} PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/qanat
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# Inside a container 127.0.0.1 reaches nobody: --host 0.0.0.0 is said here, where it can be seen and overridden.
ENTRYPOINT ["qanat", "serve", "--host", "0.0.0.0", "--port", "8000"]
