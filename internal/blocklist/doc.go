// Package blocklist follows lists of networks that others publish, such as a community's
// blocklist, and keeps them in the Consul of each region beside what operators decide by hand.
//
// One process fetches a list and writes it where operators' blocks are, so that all nodes agree,
// restarts find it, and nothing new is on the way of a request. A list that cannot be fetched or
// that looks broken changes nothing: what was published stays.
package blocklist
