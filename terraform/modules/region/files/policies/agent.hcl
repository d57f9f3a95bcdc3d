# The Consul agents themselves, including servers.
node_prefix "" { policy = "write" }
service_prefix "" { policy = "read" }
