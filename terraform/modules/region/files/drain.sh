#!/bin/sh
# Waits until the autoscaling group terminates this instance and the load balancer has deregistered
# it, lets the edge finish its requests, and lets the group go on, which waits for that (a lifecycle
# hook).
set -eu
metadata=${METADATA:-http://169.254.169.254/latest} # a test's
state() {
  token=$(curl -sSf --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token") &&
    curl -sSf --max-time 2 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/autoscaling/target-lifecycle-state"
}
until [ "$(state)" = Terminated ]; do sleep "${PAUSE:-5}"; done
# The state changes when deregistration begins: until that ends, new connections may still arrive.
echo "weir: the autoscaling group terminates this instance; in $DEREGISTRATION s the edge finishes its requests"
sleep "$DEREGISTRATION"
# Returns when the edge has ended: after shutdown.delay, and at most shutdown.timeout.
systemctl stop weir-edge.service
# This fails before the group has reached the hook, and while AWS does not answer.
until aws autoscaling complete-lifecycle-action --region "$GROUP_REGION" --auto-scaling-group-name "$GROUP" \
  --lifecycle-hook-name drained --instance-id "$INSTANCE" --lifecycle-action-result CONTINUE; do sleep "${PAUSE:-5}"; done
echo "weir: drained"
