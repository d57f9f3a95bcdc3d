# The Consul agents themselves, servers among them.
node_prefix "" { policy = "write" }
service_prefix "" { policy = "read" }
