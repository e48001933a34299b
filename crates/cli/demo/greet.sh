#!/bin/sh
# Greets people. Not much of it works yet.
echo "nothing to say"
