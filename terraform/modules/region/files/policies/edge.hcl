key_prefix "weir/rules/" { policy = "read" }
key_prefix "weir/shedder/" { policy = "read" }
service "weir-edge" { policy = "write" }
node_prefix "" { policy = "read" }
