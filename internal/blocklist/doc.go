// Package blocklist follows lists of networks that others publish, such as a community's
// blocklist, and keeps them in each region's Consul, next to what operators block by hand.
//
// One process fetches a list and writes it where operators' blocks are, so that all nodes agree,
// restarts find it, and no request depends on anything new. A list that cannot be fetched or
// looks broken changes nothing: the published one stays.
package blocklist
