# regionctl clients sync, in regions that regionctl init has named.
key_prefix "weir/clients/" { policy = "write" }
key "weir/region" { policy = "read" }
