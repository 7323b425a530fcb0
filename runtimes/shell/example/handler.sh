#!/bin/sh
# Stdin is the event, stdout the result.
name=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p')
echo "greeting ${name:-world}" >&2
printf '{"greeting": "Hello, %s!"}\n' "${name:-world}"
