package consul

// The keys of a node's registered meta. Nodes of other versions and the DNS routers read
// them: they do not change.
const (
	MetaNode           = "node"
	MetaRegion         = "region"
	MetaPoP            = "pop"
	MetaAdmin          = "admin"
	MetaPrefix         = "prefix"
	MetaSchema         = "schema" // of the documents that it reads; absent: 1
	MetaRulesVersion   = "rules_version"
	MetaRulesRefused   = "rules_refused"
	MetaShedderVersion = "shedder_version"
	MetaShedderRefused = "shedder_refused"
	MetaShedLevel      = "shed_level" // 0..1, absent while nothing is shed
)
