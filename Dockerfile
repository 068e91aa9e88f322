# Builds the one static binary and puts it, with the example agent, into an image
# that holds nothing else. Replace agentos.yaml with your own agent's.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/agentos ./cmd/agentos \
    && mkdir /out/data

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/agentos /usr/local/bin/agentos
# A new volume takes the owner of the directory it is mounted on.
COPY --from=build --chown=65532:65532 /out/data /data
COPY agentos.yaml /agent/agentos.yaml
WORKDIR /agent
USER 65532:65532
ENV AGENTOS_STORE=file:/data/agentos.db
VOLUME ["/data"]
# The server does not start on this address before there is an API key:
# docker run … keys create --store file:/data/agentos.db --name NAME --role admin
ENV AGENTOS_ADDR=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/local/bin/agentos", "health"]
# A stop gives runs AGENTOS_SHUTDOWN_GRACE (20s) to end: docker stop -t 30.
ENTRYPOINT ["/usr/local/bin/agentos"]
CMD ["serve", "agentos.yaml"]
