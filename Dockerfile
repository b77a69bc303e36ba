# A static binary and nothing else. Build: docker build -t millrace .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
      -o /out/millrace ./cmd/millrace && mkdir /out/data

# For docker-compose.yml alone: the demo in examples/postgres-pipeline, with the psql that it needs.
FROM postgres:17-alpine AS pipeline
COPY --from=build /out/millrace /usr/local/bin/millrace
COPY examples/postgres-pipeline /pipeline
USER postgres
ENTRYPOINT ["/pipeline/pipeline.sh"]

FROM scratch AS millrace
COPY --from=build /out/millrace /millrace
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
EXPOSE 8082
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/millrace", "health"]
ENTRYPOINT ["/millrace"]
# In a container the port is reached from outside, and the container's network is what keeps strangers away from it.
CMD ["serve", "--listen", "0.0.0.0:8082", "--insecure", "--data-dir", "/data"]
