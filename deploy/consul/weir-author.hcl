# Authors of rules publish only those, and can view the rest.
key_prefix "weir/" { policy = "read" }
key_prefix "weir/rules/" { policy = "write" }
service "weir-edge" { policy = "read" }
node_prefix "" { policy = "read" }
