# syntax=docker/dockerfile:1
# docker build -f deploy/docker/engine.Dockerfile -t firstlight/engine:0.1.0 .

# A layer of its own, and the largest: it changes with libtorch's version only.
FROM python:3.11-slim-bookworm AS libtorch
COPY scripts/fetch_assets.py /fetch_assets.py
ENV XDG_CACHE_HOME=/opt
RUN python3 /fetch_assets.py libtorch-2.11.0

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY --from=libtorch /opt/firstlight/libtorch-2.11.0 /opt/libtorch
ENV LIBTORCH=/opt/libtorch
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --package engine-svc && \
    install -D target/release/engine-svc /out/engine-svc

FROM debian:bookworm-slim AS rootfs
COPY deploy/docker/rootfs.sh /usr/local/bin/rootfs.sh
RUN apt-get update && rootfs.sh /rootfs

FROM scratch
COPY --from=rootfs /rootfs/ /
COPY --from=libtorch /opt/firstlight/libtorch-2.11.0/lib/ /opt/libtorch/lib/
COPY --from=build /out/engine-svc /usr/bin/engine-svc
ENV LD_LIBRARY_PATH=/opt/libtorch/lib \
    FIRSTLIGHT_LISTEN=0.0.0.0:7071 \
    FIRSTLIGHT_METRICS_LISTEN=0.0.0.0:9071
USER 65532:65532
EXPOSE 7071 9071
HEALTHCHECK --interval=10s --start-period=120s \
    CMD ["/usr/bin/engine-svc", "healthcheck", "127.0.0.1:7071", "--service", "live"]
ENTRYPOINT ["/usr/bin/engine-svc"]
