# Readers change nothing: status, show, history, diff, limits explain, audit list and audit verify work.
key_prefix "weir/" { policy = "read" }
service "weir-edge" { policy = "read" }
node_prefix "" { policy = "read" }
