# Operators: every regionctl command.
key_prefix "weir/rules/" { policy = "write" }
key_prefix "weir/shedder/" { policy = "write" }
key_prefix "weir/policy/" { policy = "write" }
key_prefix "weir/clients/" { policy = "write" }
key_prefix "weir/topology/" { policy = "write" }
key_prefix "weir/drain/" { policy = "write" }
key_prefix "weir/acts/" { policy = "write" }
key "weir/region" { policy = "write" }
service "weir-edge" { policy = "read" }
node_prefix "" { policy = "read" }
