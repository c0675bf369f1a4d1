# syntax=docker/dockerfile:1
# docker build -f deploy/docker/bench.Dockerfile -t firstlight/bench:0.1.0 .

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --package bench-client && \
    install -D target/release/bench-client /out/bench-client

FROM debian:bookworm-slim AS rootfs
COPY deploy/docker/rootfs.sh /usr/local/bin/rootfs.sh
RUN apt-get update && rootfs.sh /rootfs

FROM scratch
COPY --from=rootfs /rootfs/ /
COPY --from=build /out/bench-client /usr/bin/bench-client
USER 65532:65532
ENTRYPOINT ["/usr/bin/bench-client"]
