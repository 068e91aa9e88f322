#!/usr/bin/env bash
# Proves that the Dockerfile builds and that the image keeps its promises, on a machine
# that can pull no image: it makes stand-ins for the two base images under the names
# the Dockerfile uses, builds with a Docker Engine of its own, and uses the container as
# an operator would. It needs root, Go, and the packages docker.io, debootstrap and curl.
# Everything it makes is below one temporary directory and is gone when it ends.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "image-proof: $*" >&2; exit 1; }
step() { echo; echo "== $*"; }
seen() { echo "   $*"; }

[ "$(id -u)" -eq 0 ] || fail "needs root, to start a Docker Engine"
for tool in go docker dockerd containerd debootstrap curl nsenter; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install docker.io debootstrap curl"
done
# The engine mounts in a mount namespace that ends with this script.
[ "${1:-}" = inside ] || exec unshare --mount --propagation private "$0" inside

work=$(mktemp -d)
engine=() # process ids: containerd, dockerd
export DOCKER_HOST=unix://$work/docker.sock DOCKER_CONFIG=$work/client
container=proof
cgroup=image-proof-$$

clean() {
  local status=$? i
  if [ "$status" -ne 0 ]; then
    echo "image-proof: failed; the end of the logs:"
    if inspect '{{.State.Status}}' 2>/dev/null; then docker logs "$container"; else tail -n 15 "$work"/*.log; fi
  fi >&2
  docker rm -f "$container" >/dev/null 2>&1 || true
  for ((i = ${#engine[@]} - 1; i >= 0; i--)); do
    kill "${engine[i]}" 2>/dev/null || true
    wait "${engine[i]}" || true
  done
  findmnt -rno TARGET | grep "^$work/" | sort -r | xargs -r umount -l || true
  # Both leave empty directories outside theirs.
  find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + || true
  find /run/docker /run/containerd -depth -type d -empty -delete 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# eventually WHAT COMMAND... runs the command every half second until it succeeds.
eventually() {
  local what=$1 i
  shift
  for ((i = 0; i < 120; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.5
  done
  fail "gave up waiting: $what"
}

# An engine that shares nothing with one the machine may have, and that leaves the
# machine's network alone.
start_engine() {
  mkdir -p "$work/etc" "$DOCKER_CONFIG"
  mount --bind "$work/etc" /etc/docker # the settings of another engine; dockerd also writes a key there
  printf 'version = 2\ndisabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.grpc.v1.cri"]\n' >"$work/containerd.toml"
  containerd --config "$work/containerd.toml" --root "$work/containerd" --state "$work/run-containerd" \
    --address "$work/containerd.sock" >"$work/containerd.log" 2>&1 &
  engine+=($!)
  eventually "containerd listens" test -S "$work/containerd.sock"
  dockerd --containerd "$work/containerd.sock" --host "$DOCKER_HOST" \
    --data-root "$work/docker" --exec-root "$work/run-docker" --pidfile "$work/docker.pid" \
    --iptables=false --ip6tables=false --ip-forward=false --bridge=none \
    --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$cgroup" >"$work/dockerd.log" 2>&1 &
  engine+=($!)
  eventually "dockerd answers" docker info
  seen "$(docker version --format 'Docker Engine {{.Server.Version}}'), $(docker info --format '{{.Driver}}, {{.Images}} images' 2>/dev/null)"
}

# The certificates this machine trusts.
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}

# A minimal Debian with this machine's Go; how Go finds modules comes from it, too.
make_builder() {
  local image=$1 root=$work/builder tag=${1##*:} mirror name
  local suite=${tag#*-} changes=(--change "ENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    --change "ENV GOPATH=/go GOTOOLCHAIN=local" --change "WORKDIR /go")
  case "$(go env GOVERSION)" in
    "go${tag%%-*}" | "go${tag%%-*}."*) ;;
    *) fail "the Dockerfile wants Go ${tag%%-*}, here is $(go env GOVERSION)" ;;
  esac
  for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE; do
    changes+=(--change "ENV $name=\"$(go env "$name")\"")
  done
  # shellcheck disable=SC2016 # apt-get expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" 'Created-By: Packages' | head -n 1)
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" ${mirror:+"$mirror"} >"$work/debootstrap.log"
  cp -L "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
  cp -a "$(go env GOROOT)" "$root/usr/local/go"
  tar -C "$root" -c . | docker import "${changes[@]}" - "$image" >/dev/null
  rm -rf "$root"
}

# What a distroless static image has: users, certificates, time zones, /tmp; no shell.
make_runtime() {
  local image=$1 root=$work/runtime
  mkdir -p "$root"/{etc/ssl/certs,home/nonroot,root,tmp,usr/share,var/lib}
  printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin \
    nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$root/etc/passwd"
  printf '%s\n' root:x:0: nobody:x:65534: nonroot:x:65532: >"$root/etc/group"
  echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
  cp -L "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
  cp -a /usr/share/zoneinfo "$root/usr/share/"
  chmod 1777 "$root/tmp"
  chown 65532:65532 "$root/home/nonroot"
  tar -C "$root" -c . | docker import --change 'USER 65532' --change 'WORKDIR /home/nonroot' \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' - "$image" >/dev/null
}

inspect() { docker inspect --format "$1" "$container"; }
agentos() { timeout 60 docker exec "$container" agentos "$@"; }
is() { [ "$2" = "$3" ] || fail "$1 is \"$2\", not \"$3\""; seen "$1: $2"; }
settled() { [ "$(inspect '{{.State.Status}} {{.State.Health.Status}}')" != "running starting" ]; }
await_health() {
  eventually "the health check says something" settled
  is "docker inspect" "$(inspect '{{.State.Status}}, {{.State.Health.Status}}')" "running, healthy"
}
# has WHAT PATTERN TEXT
has() { grep -qE "$2" <<<"$3" || fail "$1: no \"$2\" in: $3"; seen "$1: $(grep -oE -m 1 "$2" <<<"$3" | head -n 1)"; }

# The server, with less than the image asks for: no network, no writable root
# directory, no capabilities.
start_container() {
  docker run -d --name "$container" --network none --read-only --cap-drop ALL \
    --security-opt no-new-privileges -v proof-data:/data agentos:proof >/dev/null
  await_health
}

# hold creates a run that is held, from inside the container's network.
hold() {
  nsenter --target "$(inspect '{{.State.Pid}}')" --net curl -sS --fail-with-body \
    -H 'Content-Type: application/json' -d '{"input": {"message": "Please cancel order A-1002, I ordered it twice."}}' \
    'http://127.0.0.1:8080/v0/envs/default/agents/mcp-support/capabilities/support/runs?wait=true'
}
field() { grep -oE "\"$1\": ?\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

# stop sends SIGTERM and expects an orderly end.
stop() {
  local begin=$SECONDS
  docker stop -t 30 "$container" >/dev/null
  is "exit code after SIGTERM" "$(inspect '{{.State.ExitCode}}')" 0
  seen "it took $((SECONDS - begin)) s"
}

check_image() {
  local id
  id=$(docker create --network none agentos:proof)
  docker cp "$id:/usr/local/bin/agentos" "$work/agentos"
  docker rm "$id" >/dev/null
  seen "$(docker image inspect --format '{{.Size}} bytes, user {{.Config.User}}, ports {{json .Config.ExposedPorts}}, volumes {{json .Config.Volumes}}' agentos:proof)"
  if ldd "$work/agentos" >/dev/null 2>&1; then fail "the binary is linked dynamically"; fi
  has "the binary" 'CGO_ENABLED=0' "$(go version -m "$work/agentos")"
  if docker run --rm --network none --entrypoint /bin/sh agentos:proof -c : 2>/dev/null; then fail "the image has a shell"; fi
  seen "static, and no shell in the image"
  has "validate" 'mcp-support' "$(docker run --rm --network none --read-only agentos:proof validate 2>&1)"
}

check_server() {
  local pid
  pid=$(inspect '{{.State.Pid}}')
  is "user and group" "$(awk '/^[UG]id/ {print $2, $3, $4, $5}' "/proc/$pid/status" | sort -u)" \
    "65532 65532 65532 65532"
  is "agentos health" "$(agentos health)" healthy
  has "a run of its own" 'A-1001' "$(agentos run support -i 'Look up order A-1001' 2>/dev/null)"
}

# A held run outlives a kill, is decided once, and outlives the container.
check_durability() {
  local run hold id shown journal
  run=$(hold)
  id=$(field run_id <<<"$run") hold=$(field hold_id <<<"$run")
  shown=$(grep -oE '"data": ?\{[^}]*\}' <<<"$run" | sed 's/^"data": *//')
  is "the run" "$(field status <<<"$run")" held
  docker kill "$container" >/dev/null
  is "exit code after docker kill" "$(inspect '{{.State.ExitCode}}')" 137
  docker start "$container" >/dev/null
  await_health
  has "after the restart" "$hold +pending" "$(agentos holds list)"
  has "approved" 'completed' "$(agentos holds approve "$hold" --wait)"
  journal=$(agentos runs events "$id")
  is "the journal" "$(cut -d ' ' -f 3 <<<"$journal" | xargs)" \
    "run.created model.answered hold.opened hold.decided hold.closed call.started call.finished model.answered run.completed"
  is "what ran is what was shown" "$(sed -n 's/.* call.started call_1 //p' <<<"$journal")" "orders/cancel_order $shown"
  stop
  docker rm "$container" >/dev/null
  start_container
  has "in a new container on the same volume" 'status: +completed' "$(agentos runs show "$id")"
}

# A stop while a run is held.
check_stop() {
  hold >/dev/null
  stop
  has "the log" 'msg=stopping' "$(docker logs "$container" 2>&1)"
}

step "start a Docker Engine below $work"
start_engine
mapfile -t bases < <(awk '/^FROM/ {print $2}' Dockerfile)
[ "${#bases[@]}" -eq 2 ] || fail "the Dockerfile has ${#bases[@]} base images, not 2"
step "make a stand-in for ${bases[0]}: Debian and $(go env GOVERSION)"
make_builder "${bases[0]}"
step "make a stand-in for ${bases[1]}"
make_runtime "${bases[1]}"
step "build the image"
docker build --network host -t agentos:proof . >"$work/build.log" 2>&1
grep -E '^(Step|#[0-9]+ \[)' "$work/build.log" | sed 's/^/   /' || true
step "look at the image"
check_image
step "start a container without network, writable root directory or capabilities"
start_container
check_server
step "hold a run, kill the container, decide, replace the container"
check_durability
step "stop it while a run is held"
check_stop
step "the image builds and runs as promised"
