#!/usr/bin/env bash
# Runs the programs as their images do, with nothing that builds images: each in a root directory that holds the program,
# certificates and what its pod would mount, read-only, as user 65532 without a capability. It needs root, to make those.
#
# A broker runs outside, as `hookctl dev`. A receipt that is published from within must end as an execution.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

# image makes the root directory of a program.
image() {
  mkdir -p "$work/$1/etc/afterwrite/hooks" "$work/$1/etc/ssl"
  cp "bin/$1" "$work/$1/$1"
  cp -rL /etc/ssl/certs "$work/$1/etc/ssl/"
  cp providers/periodicreport/hook.json "$work/$1/etc/afterwrite/hooks/"
  cp internal/stack/profiles.yaml "$work/$1/etc/afterwrite/"
  # The second receipt of the demonstration, as if it were of now.
  sed -n 2p cmd/hookctl/demo.jsonl | sed -E "s/(\"committed_at\": *\")[^\"]*/\1$(date -u +%FT%TZ)/" >"$work/$1/etc/afterwrite/receipt.json"
  cat >"$work/$1/etc/afterwrite/grants.yaml" <<'GRANTS'
executor: report_evaluator
grants:
  - intent_kind: periodic_report.trigger_evaluation
    from: all
    service: {name: periodic_report.evaluate_trigger}
    policy:
      trigger_kinds: [bounded_segment_milestone, cadence_due, manual]
      minimum_interval_seconds: 0
      todo_completed_threshold: 3
      promote_replan: true
    state_key: goal_id
    evaluated_at: observed_at
GRANTS
}

# inside becomes a program of an image: inside IMAGE [ARGUMENT...]. It is for subshells and background jobs.
inside() {
  local root=$work/$1 program=/$1
  shift
  exec unshare --mount bash -euc '
    mount --bind "$0" "$0"
    mount -o remount,bind,ro,nosuid,nodev "$0"
    exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid chroot --userspec=65532:65532 --groups= "$0" "$@"
  ' "$root" "$program" "$@"
}

# until_ok tries a command for half a minute.
until_ok() {
  for _ in {1..100}; do
    "$@" && return
    sleep 0.3
  done
  printf 'gave up: %s\n' "$*"
  return 1
}

# ready asks the program at a port, and says what it answers.
ready() {
  local answer
  answer=$( (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && timeout 2 cat <&3) 2>/dev/null)
  [[ $answer == *' 200 OK'* ]]
}

make --silent build
for program in dispatcher executor provider-periodic-report hookctl; do
  image "$program"
  printf '%-26s' "$program"
  (inside "$program" --version)
done

bin/hookctl dev --port 0 --address-file "$work/address" --no-provider --no-executor --log-level error &
until_ok test -s "$work/address"
url=$(<"$work/address")
export AFTERWRITE_LOG_LEVEL=warn

sizes=(--receipts-size 256MiB --journal-size 256MiB --intents-size 256MiB --executions-size 256MiB)
inside dispatcher --nats-url "$url" --listen 127.0.0.1:18080 "${sizes[@]}" \
  --hooks /etc/afterwrite/hooks --profiles /etc/afterwrite/profiles.yaml &
inside provider-periodic-report --nats-url "$url" --listen 127.0.0.1:18081 &
inside executor --nats-url "$url" --listen 127.0.0.1:18082 --grants /etc/afterwrite/grants.yaml &
for port in 18080 18081 18082; do
  until_ok ready "$port"
done

(inside hookctl receipt publish --nats-url "$url" /etc/afterwrite/receipt.json)
completed() { (inside hookctl execution list --nats-url "$url") | grep completed; }
until_ok completed
