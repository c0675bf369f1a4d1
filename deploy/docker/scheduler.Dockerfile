# syntax=docker/dockerfile:1
# docker build -f deploy/docker/scheduler.Dockerfile -t firstlight/scheduler:0.1.0 .

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --package scheduler-svc && \
    install -D target/release/scheduler-svc /out/scheduler-svc

FROM debian:bookworm-slim AS rootfs
COPY deploy/docker/rootfs.sh /usr/local/bin/rootfs.sh
RUN apt-get update && rootfs.sh /rootfs

FROM scratch
COPY --from=rootfs /rootfs/ /
COPY --from=build /out/scheduler-svc /usr/bin/scheduler-svc
ENV FIRSTLIGHT_LISTEN=0.0.0.0:7070 \
    FIRSTLIGHT_METRICS_LISTEN=0.0.0.0:9070
USER 65532:65532
EXPOSE 7070 9070
HEALTHCHECK --interval=10s --start-period=30s \
    CMD ["/usr/bin/scheduler-svc", "healthcheck", "127.0.0.1:7070", "--service", "live"]
ENTRYPOINT ["/usr/bin/scheduler-svc"]
