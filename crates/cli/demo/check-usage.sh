#!/bin/sh
# Proves: without a name there is a usage line on stderr and exit code 2.
said=$(sh greet.sh 2>&1 >/dev/null)
code=$?
[ "$code" = 2 ] || { echo "wanted exit code 2, got $code" >&2; exit 1; }
case $said in usage:*) ;; *) echo "wanted a usage line, got: $said" >&2; exit 1 ;; esac
