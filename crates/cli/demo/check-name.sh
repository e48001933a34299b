#!/bin/sh
# Proves: a name is greeted.
got=$(sh greet.sh Ada) || { echo "greet.sh Ada ended with $?" >&2; exit 1; }
[ "$got" = "Hello, Ada!" ] || { echo "wanted: Hello, Ada!   got: $got" >&2; exit 1; }
