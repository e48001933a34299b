#!/bin/sh
# Proves: --shout greets in capitals.
got=$(sh greet.sh --shout Ada)
[ "$got" = "HELLO, ADA!" ] || { echo "wanted: HELLO, ADA!   got: $got" >&2; exit 1; }
