package consul

// The keys of a node's registered meta. Nodes of other versions and the DNS routers read
// them, so they must not change.
const (
	MetaNode           = "node"
	MetaRegion         = "region"
	MetaPoP            = "pop"
	MetaAdmin          = "admin"
	MetaPrefix         = "prefix"
	MetaPeer           = "peer"      // host:port for other nodes; absent: none
	MetaSchema         = "schema"    // the newest of documents that it reads
	MetaSignedBy       = "signed_by" // comma-separated keys, one of which must sign documents; absent if none need to
	MetaRulesVersion   = "rules_version"
	MetaRulesRefused   = "rules_refused"
	MetaShedderVersion = "shedder_version"
	MetaShedderRefused = "shedder_refused"
	// For a node that follows behavior policies: the newest schema that it reads, what it
	// runs and what it rejected. Absent if it follows none.
	MetaPolicySchema  = "policy_schema"
	MetaPolicyVersion = "policy_version"
	MetaPolicyRefused = "policy_refused"
	// For a node that follows client networks: the newest schema that it reads, and the
	// version it has. Absent if it follows none.
	MetaClientsSchema  = "clients_schema"
	MetaClientsVersion = "clients_version"
	// Requests per second. A node has a capacity if it was full within the last hour, and
	// otherwise reports what it can serve at least. Without a shedder, it reports none of
	// the three.
	MetaDemand          = "demand"
	MetaCapacity        = "capacity"
	MetaCapacityAtLeast = "capacity_at_least"
	// What follows the name of a kind of document in the keys of its versions.
	MetaVersion, MetaRefused = "_version", "_refused"
)
