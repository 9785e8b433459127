#!/bin/sh
# build.sh: builds the image and prints its tag. The tag is a hash of what the image is made of, so that nothing is built
# twice. The default base image is made with debootstrap where it can be neither found nor pulled; BASE_IMAGE names another
# one. Certificate authorities that this machine has of its own are trusted while building.
set -eu
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
default=debian:bookworm-slim
base=${BASE_IMAGE:-$default}
inputs() {
    (cd "$here" && find . -type f ! -path './ca-certificates/*' | LC_ALL=C sort | xargs sha256sum)
    [ "$base" = "$default" ] || echo "$base"
}
tag=hbasemk-hbase:$(inputs | sha256sum | cut -c1-16)

say() { echo "build.sh: $*" >&2; }

docker version >/dev/null 2>&1 || { say "no Docker engine answers; start one"; exit 1; }
if docker image inspect "$tag" >/dev/null 2>&1; then
    echo "$tag"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if ! docker image inspect "$base" >/dev/null 2>&1 && ! timeout --foreground 120 docker pull "$base" >&2; then
    [ "$base" = "$default" ] || { say "$base can be neither found nor pulled; check BASE_IMAGE, or unset it"; exit 1; }
    [ "$(id -u)" = 0 ] || {
        say "$base cannot be pulled; run this script as root, or set BASE_IMAGE to a Debian bookworm image that is there"
        exit 1
    }
    say "$base cannot be pulled; making it with debootstrap"
    if ! command -v debootstrap >/dev/null; then
        apt-get update >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap >&2
    fi
    debootstrap --variant=minbase bookworm "$work/root" >"$work/debootstrap.log" 2>&1 || {
        tail -n 20 "$work/debootstrap.log" >&2
        say "debootstrap failed; set BASE_IMAGE to a Debian bookworm image that is there"
        exit 1
    }
    rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
    tar -C "$work/root" -cf "$work/root.tar" .
    docker import "$work/root.tar" "$base" >&2
    rm -rf "$work/root" "$work/root.tar"
fi

cp -R "$here" "$work/context"
[ ! -d /usr/local/share/ca-certificates ] || cp -RL /usr/local/share/ca-certificates/. "$work/context/ca-certificates/"
say "building $tag"
docker build --network host --build-arg "BASE_IMAGE=$base" -t "$tag" "$work/context" >"$work/build.log" 2>&1 || {
    tail -n 40 "$work/build.log" >&2
    say "the build failed"
    exit 1
}
echo "$tag"
