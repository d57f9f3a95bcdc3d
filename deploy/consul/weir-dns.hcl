# regionctl dns. Without a router's signing key, its token moves no clients by weir/spill.
key_prefix "weir/topology/" { policy = "read" }
key_prefix "weir/drain/" { policy = "read" }
key "weir/spill" { policy = "write" }
service "weir-edge" { policy = "read" }
node_prefix "" { policy = "read" }
