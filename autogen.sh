#!/bin/sh
# Make configure from configure.ac; needs autoconf, automake and pkg-config.
set -e
cd "$(dirname "$0")"
mkdir -p src/m4/aux
exec autoreconf --install --force --warnings=all
