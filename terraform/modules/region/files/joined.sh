#!/bin/sh
# Tells the autoscaling group that this server has joined its datacenter, which has a leader.
# Until then the group terminates no other server.
set -eu
consul=http://${CONSUL_HTTP_ADDR:-127.0.0.1:8500}/v1/status
curl -sSf --max-time 5 "$consul/leader" | grep -q ':'
curl -sSf --max-time 5 "$consul/peers" | grep -qF "\"$SERVER\""
if ! said=$(aws autoscaling complete-lifecycle-action --region "$GROUP_REGION" --auto-scaling-group-name "$GROUP" \
  --lifecycle-hook-name joined --instance-id "$INSTANCE" --lifecycle-action-result CONTINUE 2>&1); then
  # It was told before, or the instance is older than the hook.
  case $said in *"No active Lifecycle Action"*) ;; *) echo "weir: $said" >&2 && exit 1 ;; esac
fi
echo "weir: this server has joined"
