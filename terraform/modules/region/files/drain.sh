#!/bin/sh
# Waits until the autoscaling group is about to terminate this instance, lets the edge finish its
# requests, and lets the group go on. The group waits for that (a lifecycle hook), after the load
# balancer has stopped sending new connections.
set -eu
metadata=${METADATA:-http://169.254.169.254/latest} # a test's
state() {
  token=$(curl -sSf --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token") &&
    curl -sSf --max-time 2 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/autoscaling/target-lifecycle-state"
}
until [ "$(state)" = Terminated ]; do sleep "${PAUSE:-5}"; done
echo "weir: the autoscaling group terminates this instance; the edge finishes its requests"
# Returns when the edge has ended: after shutdown.delay, and at most shutdown.timeout.
systemctl stop weir-edge.service
# Until the load balancer is done the group is not waiting yet, and this fails; systemd repeats it.
aws autoscaling complete-lifecycle-action --region "$GROUP_REGION" --auto-scaling-group-name "$GROUP" \
  --lifecycle-hook-name drained --instance-id "$INSTANCE" --lifecycle-action-result CONTINUE
echo "weir: drained"
