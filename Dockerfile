# syntax=docker/dockerfile:1
FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile packaged --locked --bin holdfast \
    && install -D --mode=0755 target/packaged/holdfast /out/usr/bin/holdfast \
    && install --directory --owner=65532 --group=65532 --mode=0700 /out/var/lib/holdfast

# Contains libc, certificates and time zones, but no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/usr/bin/holdfast /usr/bin/holdfast
COPY --from=build --chown=65532:65532 --chmod=0700 /out/var/lib/holdfast /var/lib/holdfast
USER 65532:65532
ENV HOLDFAST_DATA_DIR=/var/lib/holdfast \
    HOLDFAST_LISTEN=0.0.0.0:8080
VOLUME /var/lib/holdfast
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["/usr/bin/holdfast", "health"]
ENTRYPOINT ["/usr/bin/holdfast"]
CMD ["serve"]
