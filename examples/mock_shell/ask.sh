#!/usr/bin/env bash
# The program under test: asks for a completion and prints its text; a busy server is asked again.
set -euo pipefail

body=$(printf '{"model": "caesar-research", "prompt": "%s"}' "$1")
curl -sS --fail --retry 2 "$OPENAI_BASE_URL/completions" \
  -H 'Content-Type: application/json' -d "$body" |
  sed -n 's/.*"text":"\([^"]*\)".*/\1/p'
