#!/bin/sh
# Runs every check and says in TAP how each ended.
cd "$(dirname "$0")/.." || exit 1
echo 1..3
n=0 failed=0
for check in name usage shout; do
  n=$((n + 1))
  if sh "tests/check-$check.sh" 2>/dev/null; then echo "ok $n - $check"; else echo "not ok $n - $check"; failed=1; fi
done
exit $failed
