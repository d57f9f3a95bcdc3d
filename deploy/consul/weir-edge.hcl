# Edge nodes. Only those with listen.peer need weir/topology/.
key_prefix "weir/rules/" { policy = "read" }
key_prefix "weir/shedder/" { policy = "read" }
key_prefix "weir/policy/" { policy = "read" }
key_prefix "weir/clients/" { policy = "read" }
key_prefix "weir/topology/" { policy = "read" }
service "weir-edge" { policy = "write" }
node_prefix "" { policy = "read" }
