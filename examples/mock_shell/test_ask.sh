#!/usr/bin/env bash
# Tests of a shell script against a mock server: nothing but bash, curl and caesar-server.
set -euo pipefail
cd "$(dirname "$0")"

# One line tells the port.  The server ends with this script, since its standard input does.
coproc MOCK { exec caesar-server mock --port 0 --print-port --until-stdin-ends --log-level warning; }
read -r port <&"${MOCK[0]}"
mock="http://127.0.0.1:$port"

# control SCOPE PATH JSON: tell the mock something; an error is printed and ends the script.
control() {
  curl -sS --fail-with-body "$mock/t/$1/_mock/$2" -H 'Content-Type: application/json' -d "$3" \
    >answer || { cat answer; exit 1; }
}
# ask SCOPE PROMPT: run the program under test.  Each test has a scope of its own: a base URL.
ask() { OPENAI_BASE_URL="$mock/t/$1/compat" ./ask.sh "$2"; }
equal() {
  [[ "$2" == "$3" ]] || { echo "FAILED: $1: wanted '$2', got '$3'"; exit 1; }
  echo "ok: $1"
}
trap 'rm -f answer' EXIT

control tea rules '{"when": {"prompt": {"contains": "tea"}}, "reply": "Milk?"}'
equal "the answer is printed" "Milk?" "$(ask tea 'Some tea')"

control busy rules '{"times": 1, "fault": {"kind": "status", "status": 503, "retry_after_s": 0}}'
equal "a busy server is asked again" "Hi" "$(ask busy Hi)"
control busy journal/check '{"times": 2, "when": {"prompt": "Hi"}}'
echo "ok: it was asked twice"

control down rules '{"fault": {"kind": "status", "status": 400}}'
ask down Hi >answer && { echo "FAILED: no exit status"; exit 1; }
echo "ok: a refusal is a failure"
