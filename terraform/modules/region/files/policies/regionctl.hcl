key_prefix "weir/" { policy = "write" }
service "weir-edge" { policy = "read" }
node_prefix "" { policy = "read" }
agent_prefix "" { policy = "read" }
