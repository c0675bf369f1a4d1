# syntax=docker/dockerfile:1
# docker build -f deploy/docker/engine-cuda.Dockerfile -t firstlight/engine-cuda:0.1.0 .
# Runs where the NVIDIA container toolkit brings the driver in.

# libtorch with its CUDA libraries, laid out as their wheels expect to find one another.
FROM python:3.11-slim-bookworm AS libtorch
RUN pip install --no-cache-dir --target /opt/cuda \
    torch==2.11.0 nvidia-cuda-crt==13.0.88 nvidia-cuda-nvrtc==13.0.88 && \
    echo 2.11.0 > /opt/cuda/torch/build-version

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY --from=libtorch /opt/cuda /opt/cuda
ENV LIBTORCH=/opt/cuda/torch \
    CUDA_HEADERS=/opt/cuda/nvidia/cu13/include
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --package engine-svc --features cuda && \
    install -D target/release/engine-svc /out/engine-svc

FROM debian:bookworm-slim AS rootfs
COPY deploy/docker/rootfs.sh /usr/local/bin/rootfs.sh
RUN apt-get update && rootfs.sh /rootfs

FROM scratch
COPY --from=rootfs /rootfs/ /
COPY --from=libtorch /opt/cuda/nvidia/ /opt/cuda/nvidia/
COPY --from=libtorch /opt/cuda/torch/lib/ /opt/cuda/torch/lib/
COPY --from=build /out/engine-svc /usr/bin/engine-svc
ENV LD_LIBRARY_PATH=/opt/cuda/torch/lib:/opt/cuda/nvidia/cu13/lib \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    FIRSTLIGHT_LISTEN=0.0.0.0:7071 \
    FIRSTLIGHT_METRICS_LISTEN=0.0.0.0:9071
USER 65532:65532
EXPOSE 7071 9071
HEALTHCHECK --interval=10s --start-period=600s \
    CMD ["/usr/bin/engine-svc", "healthcheck", "127.0.0.1:7071", "--service", "live"]
ENTRYPOINT ["/usr/bin/engine-svc"]
